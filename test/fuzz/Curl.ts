/** Prints a request as a `curl` command that sends the same bytes. */
import { signatureHeader } from "../../src/application/GatewayWebhook.ts"
import { bytesOf, type FuzzRequest } from "./FuzzRequest.ts"

const quoted = (text: string) => `'${text.replaceAll("'", `'\\''`)}'`

/** Text that a terminal shows and a shell passes on unchanged. */
const isPlain = (bytes: Buffer) => /^[\x20-\x7e]*$/.test(bytes.toString("latin1"))

/** Bytes as a word of bash. */
const word = (bytes: Buffer) =>
  isPlain(bytes)
    ? quoted(bytes.toString())
    : `$'${[...bytes].map((byte) => (byte >= 0x20 && byte < 0x7f && byte !== 0x27 && byte !== 0x5c ? String.fromCodePoint(byte) : `\\x${byte.toString(16).padStart(2, "0")}`)).join("")}'`

/** The command for bash. A signature is made as the command runs: it would be too old a few minutes later. */
export const curl = (url: string, request: FuzzRequest, secret?: string): string => {
  const bytes = bytesOf(request.body)
  const isNoWord = !isPlain(bytes)
  const words = [
    "curl -sS -i --path-as-is -m 15",
    request.method === "HEAD" ? "-I" : `-X ${request.method}`,
    ...request.headers.map(([name, value]) =>
      // Curl takes a name without a value for "leave this header out", and with a semicolon for an empty one.
      value === "" ? `-H ${quoted(`${name};`)}` : `-H ${word(Buffer.from(`${name}: ${value}`, "latin1"))}`
    ),
    // Curl adds headers of its own, which the request may not have.
    ...(request.body !== undefined && !request.headers.some(([name]) => name.toLowerCase() === "content-type")
      ? ["-H 'content-type:'"]
      : []),
    ...(request.isSigned && secret !== undefined
      ? [
          `-H "${signatureHeader}: t=$t,v1=$({ printf %s "$t."; body; } | openssl dgst -sha256 -hmac ${quoted(secret)} -r | cut -d' ' -f1)"`
        ]
      : []),
    ...(request.body === undefined
      ? []
      : request.isSigned || isNoWord
        ? ["--data-binary @<(body)"]
        : [`--data-binary ${quoted(bytes.toString())}`]),
    quoted(`${url}${request.target}`)
  ]
  const body = isNoWord ? `echo ${bytes.toString("base64")} | base64 -d` : `printf %s ${quoted(bytes.toString())}`
  return [
    ...(request.body !== undefined && (request.isSigned || isNoWord) ? [`body() { ${body}; }`] : []),
    ...(request.isSigned && secret !== undefined ? ["t=$(date +%s)"] : []),
    words.join(" ")
  ].join("; ")
}
