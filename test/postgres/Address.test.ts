/** What the parameters of a Postgres URL mean, and which are refused rather than ignored. */
import { assert, it } from "@effect/vitest"
import { Result } from "effect"
import * as Address from "../../src/postgres/tls/Address.ts"

const addressOf = (url: string) => Result.getOrThrow(Address.parse(url))
const refusalOf = (url: string) => Result.getOrThrow(Result.flip(Address.parse(url)))
const at = (query: string) => `postgres://u:secret@db.example/shop?${query}`

it("without sslmode TLS is preferred, by any certificate, and with sslrootcert=system the name is verified", () => {
  assert.deepStrictEqual(addressOf("postgres://u@db.example/shop"), {
    target: { host: "db.example", port: 5432 },
    tls: { mode: "prefer", rootCertificate: undefined, client: undefined },
    requiresScram: false,
    isLocal: false
  })
  assert.strictEqual(addressOf(at("sslrootcert=system")).tls?.mode, "verify-full")
})

it("each mode of libpq means what it means there", () => {
  assert.isUndefined(addressOf(at("sslmode=disable")).tls)
  assert.strictEqual(addressOf(at("sslmode=require")).tls?.mode, "require")
  // Named, so used: as libpq does.
  assert.strictEqual(addressOf(at("sslmode=require&sslrootcert=/ca.crt")).tls?.mode, "verify-ca")
  assert.strictEqual(addressOf(at("sslmode=verify-full&sslrootcert=/ca.crt")).tls?.mode, "verify-full")
  assert.deepStrictEqual(addressOf(at("sslcert=/c.crt&sslkey=/c.key")).tls?.client, {
    certificate: "/c.crt",
    key: "/c.key"
  })
})

it("a parameter that would be ignored is refused in a sentence that names it and shows no secret", () => {
  for (const [query, sentence] of [
    ["ssl=true", /^ssl is no parameter of libpq: set sslmode=require or, safer, sslmode=verify-full with sslrootcert$/],
    [
      "sslmod=require",
      /^the parameter sslmod is unknown; there are host, port,.* sslmode, sslrootcert, sslcert, sslkey, require_auth$/
    ],
    ["sslmode=on", /^sslmode is one of disable, prefer, require, verify-ca, verify-full, and not "on"$/],
    ["sslmode=allow", /^sslmode is one of/],
    ["sslnegotiation=direct&sslmode=require", /^the parameter sslnegotiation is unknown/],
    ["sslcrl=/crl.pem", /^the parameter sslcrl is unknown/],
    ["sslmode=verify-full", /^sslmode=verify-full needs sslrootcert: /],
    ["sslmode=verify-ca", /^sslmode=verify-ca needs sslrootcert: /],
    ["sslmode=require&sslrootcert=system", /^sslrootcert=system needs sslmode=verify-full$/],
    ["sslcert=/c.crt", /^sslcert and sslkey belong together: set both$/],
    ["port=x", /^port is a whole number/]
  ] as const) {
    assert.match(refusalOf(at(query)), sentence)
    assert.notInclude(refusalOf(at(query)), "secret")
  }
})

it("only a Unix socket and loopback addresses are local", () => {
  for (const host of ["localhost", "db.localhost", "127.0.0.1", "127.8.9.1", "[::1]", "%2Fvar%2Frun%2Fpostgresql"]) {
    assert.isTrue(addressOf(`postgres://u@${host}/d`).isLocal, host)
  }
  for (const host of ["db.example", "10.0.0.1", "127.example", "localhost.example", "[fe80::1]"]) {
    assert.isFalse(addressOf(`postgres://u@${host}/d`).isLocal, host)
  }
  assert.deepStrictEqual(addressOf("postgres://u@h/d?host=/run/pg&port=5433&sslmode=verify-full&sslrootcert=system"), {
    target: { path: "/run/pg/.s.PGSQL.5433" },
    tls: undefined,
    requiresScram: false,
    isLocal: true
  })
})
