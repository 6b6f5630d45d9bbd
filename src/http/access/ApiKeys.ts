/**
 * API keys: how one is drawn, how API_KEYS lists them, and how a request's key is recognised.
 *
 * The service stores a hash of each key, so that whoever reads its environment can't call it. A single round of SHA-256 is right for
 * that. Slow hashes protect what people choose. A key is 32 random bytes: nobody guesses it, however fast.
 */
import { Result } from "effect"
import { createHash, randomBytes, timingSafeEqual } from "node:crypto"
import { adminName, anonymousName, type Scope } from "./Caller.ts"

/** An entry of API_KEYS. Several may share a name: a new key of a program works beside its old one until that is removed. */
export interface ApiKey {
  readonly name: string
  readonly scope: Scope
  /** SHA-256 of the key. */
  readonly digest: Buffer
}

/** Each request is compared with all of them: a hundred comparisons take some twenty microseconds. */
const maxKeys = 100
/** As hard to guess as AES-256. */
const keyBytes = 32

export const digestOf = (key: string): Buffer => createHash("sha256").update(key).digest()

const nameRule = "1 to 64 letters, digits, dots, dashes or underscores"

/** Why nobody may have this name; undefined where it is fine. */
export const refusedName = (name: string): string | undefined =>
  !/^[A-Za-z0-9._-]{1,64}$/.test(name)
    ? `a name has ${nameRule}`
    : name === anonymousName
      ? `"${anonymousName}" is the name of callers without a key`
      : name === adminName
        ? `"${adminName}" is the name of the owner of ADMIN_TOKEN`
        : undefined

/** What a key's scope may be. */
export const scopes = ["customer", "viewer", "operator"] as const satisfies ReadonlyArray<Scope>

/** The scope with this name. */
export const scopeNamed = (text: string): Scope | undefined => scopes.find((scope) => scope === text)

/** A new key, and the entry of API_KEYS that admits it. The prefix lets scanners of leaked secrets recognise a key. */
export const draw = (name: string, scope: Scope): { readonly key: string; readonly entry: string } => {
  const key = `paid_once_${randomBytes(keyBytes).toString("base64url")}`
  return { key, entry: `${name}:${scope}:${digestOf(key).toString("hex")}` }
}

/** Reads the value of API_KEYS; fails with what is allowed, and the position of the entry that is not. Neither contains a hash. */
export const parse = (value: string): Result.Result<ReadonlyArray<ApiKey>, string> => {
  const entries = value.split(",").map((entry) => entry.trim())
  if (entries.length > maxKeys) return refused(`it has ${entries.length} entries, and at most ${maxKeys} are allowed`)
  const keys: Array<ApiKey> = []
  for (const [index, entry] of entries.entries()) {
    const [name = "", scopeName = "", hash = "", ...more] = entry.split(":")
    const scope = scopeNamed(scopeName)
    const wrong =
      refusedName(name) ??
      (scope === undefined
        ? "the scope is customer, viewer or operator"
        : more.length > 0 || !/^[0-9a-f]{64}$/i.test(hash)
          ? "the hash is the SHA-256 of the key, 64 hexadecimal digits"
          : undefined)
    if (wrong !== undefined || scope === undefined) return refused(`in entry ${index + 1} ${wrong}`)
    const digest = Buffer.from(hash, "hex")
    const same = keys.findIndex((other) => other.digest.equals(digest))
    if (same >= 0) return refused(`entries ${same + 1} and ${index + 1} have one hash, and a key has one owner`)
    keys.push({ name, scope, digest })
  }
  return Result.succeed(keys)
}

const refused = (reason: string) =>
  Result.fail(`a comma-separated list of name:scope:sha256, as \`paid-once api-key\` prints them: ${reason}`)

/** ADMIN_TOKEN, as the key of an operator. */
export const ofAdmin = (token: string): ApiKey => ({ name: adminName, scope: "operator", digest: digestOf(token) })

/** The token of an `Authorization` header of kind Bearer. */
export const bearerOf = (authorization: string | undefined): string | undefined =>
  /^bearer +(\S+) *$/i.exec(authorization ?? "")?.[1]

/**
 * The entry of the list that this key fits; undefined where it fits none. The time that it takes does not tell how much of a key is right:
 * hashes are compared, each of them whole.
 */
export const ownerOf = <A extends { readonly digest: Buffer }>(list: Iterable<A>, key: string): A | undefined => {
  const digest = digestOf(key)
  let owner: A | undefined
  for (const entry of list) if (timingSafeEqual(digest, entry.digest)) owner = entry
  return owner
}
