/** Why TLS with Postgres failed, as one sentence that names the parameter to change. OpenSSL's own words name none. */
import type { TlsWish } from "./Address.ts"

const codeOf = (reason: unknown): string =>
  typeof reason === "object" && reason !== null && "code" in reason ? String(reason.code) : ""

/** No chain from the server's certificate to one of sslrootcert. */
const unknownAuthority: ReadonlySet<string> = new Set([
  "DEPTH_ZERO_SELF_SIGNED_CERT",
  "SELF_SIGNED_CERT_IN_CHAIN",
  "UNABLE_TO_GET_ISSUER_CERT",
  "UNABLE_TO_GET_ISSUER_CERT_LOCALLY",
  "UNABLE_TO_VERIFY_LEAF_SIGNATURE",
  "CERT_SIGNATURE_FAILURE"
])

/** The server's word on the client's certificate, which may come after the handshake. */
const clientRefused =
  /_ALERT_(UNKNOWN_CA|BAD_CERTIFICATE|CERTIFICATE_(EXPIRED|REQUIRED|UNKNOWN|REVOKED)|DECRYPT_ERROR)$/

/**
 * `reason` is an error of Node's, `no TLS` for a server that offers none, or `no answer` for one that answers something else.
 * `undefined` for an error that has nothing to do with TLS.
 */
export const explain = (
  reason: unknown,
  host: string,
  { client, mode, rootCertificate }: TlsWish
): string | undefined => {
  const asked = `sslmode=${mode}`
  if (reason === "no TLS") {
    return `${asked}: the server at ${host} offers no TLS; turn ssl on there, or set sslmode=prefer`
  }
  if (reason === "no answer") return `${asked}: ${host} does not answer a request for TLS as Postgres does`
  const code = codeOf(reason)
  if (unknownAuthority.has(code)) {
    return `${asked}: no authority in sslrootcert=${rootCertificate} has signed the certificate of ${host}; name the file with the one that has`
  }
  if (code === "ERR_TLS_CERT_ALTNAME_INVALID") {
    return `${asked}: the certificate of ${host} is for another name (${namesOf(reason)}); connect by that name, or set sslmode=verify-ca`
  }
  if (code === "CERT_HAS_EXPIRED") {
    return `${asked}: the certificate of ${host}, or of its authority in sslrootcert, has expired; renew it`
  }
  if (code === "CERT_NOT_YET_VALID") {
    return `${asked}: the certificate of ${host} is not valid yet; compare the clocks of both machines`
  }
  if (clientRefused.test(code)) {
    return client === undefined
      ? `${asked}: ${host} wants a certificate of the client; name it with sslcert and sslkey`
      : `${asked}: ${host} does not accept the certificate sslcert=${client.certificate}`
  }
  if (code.startsWith("ERR_OSSL_")) return `sslcert or sslkey: ${wordsOf(reason)}`
  return code.startsWith("ERR_SSL_") ? `${asked}: ${wordsOf(reason)}` : undefined
}

/** OpenSSL's words, without its codes and places. */
const wordsOf = (reason: unknown): string => {
  const { message, reason: words } = reason as { readonly reason?: string; readonly message: string }
  return words ?? message
}

const namesOf = (reason: unknown): string => {
  const { cert } = reason as {
    readonly cert?: { readonly subjectaltname?: string; readonly subject?: { readonly CN?: string } }
  }
  return cert?.subjectaltname ?? cert?.subject?.CN ?? "none"
}
