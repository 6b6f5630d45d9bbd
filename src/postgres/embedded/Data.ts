/** The data of a server: created completely or not at all, checked for the version of the binaries, and removed. */
import { Effect } from "effect"
import { randomBytes } from "node:crypto"
import { chown, mkdir, open, readdir, readFile, rename, rm, stat, writeFile } from "node:fs/promises"
import { join } from "node:path"
import { plainFile } from "../../platform/OwnDirectory.ts"
import type { Host } from "./Account.ts"
import { attempt, fail, run, whereExists } from "./Process.ts"
import * as Roles from "./Roles.ts"

/** Settings of Postgres, as after its `-c`. */
export type Settings = Readonly<Record<string, string>>

const initLimitSeconds = 120 // takes under a second here; a slow disk is not yet an error

/** The cluster's directory. */
export const dataOf = (base: string) => join(base, "data")

/** The server's log. */
export const logOf = (home: string) => join(home, "postgres.log")

const passwordOf = (home: string) => join(home, "password")
const unfinished = "initializing-"

/** The server's password. Created where there is none, unless there is data that an earlier password protects. */
export const password = Effect.fnUntraced(function* (home: string, base: string) {
  const found = (yield* whereExists("read the password", () => readFile(passwordOf(home), plainFile)))?.trim()
  if (found !== undefined && found !== "") return found
  if ((yield* whereExists("look at the data", () => stat(dataOf(base)))) !== undefined) {
    return yield* fail("DataMissing", `${passwordOf(home)} is gone. Put it back, or begin anew with npm run reset.`)
  }
  const made = randomBytes(24).toString("hex") // hex needs no escaping in a URL
  yield* attempt("keep the password", async () => {
    const half = `${passwordOf(home)}.half`
    await writeFile(half, made, { mode: 0o600 })
    await rename(half, passwordOf(home))
  })
  return made
})

/** The version of the layout, beside the data. The first one had no such file, and no role but the superuser. */
const layoutOf = (base: string) => join(base, "layout")
const layout = "2"

/**
 * Creates the data of a new server where there is none.
 *
 * A creation ends with a rename, so the data of a killed run does not count and is created again.
 */
export const initialize = Effect.fn("EmbeddedPostgres.initialize")(function* (
  host: Host,
  secret: string,
  settings: Settings
) {
  const { base } = host
  yield* removeUnfinished(base)
  const durable = settings.fsync !== "off"
  if ((yield* whereExists("look at the data", () => stat(dataOf(base)))) !== undefined) {
    yield* checkMajor(host)
    return yield* checkLayout(base)
  }
  yield* attempt("write the layout", () => writeFile(layoutOf(base), `${layout}\n`, { mode: 0o600 }))
  yield* create(host, secret, durable)
})

const create = Effect.fnUntraced(function* (host: Host, secret: string, durable: boolean) {
  const { account, base } = host
  const directory = join(base, `${unfinished}${randomBytes(4).toString("hex")}`)
  const secretFile = `${directory}.password` // initdb needs a file, and an empty directory
  yield* Effect.gen(function* () {
    yield* attempt("make the data directory", async () => {
      await mkdir(directory, { mode: 0o700 })
      await writeFile(secretFile, secret, { mode: 0o600 })
      if (account._tag !== "OtherUser") return
      await chown(directory, account.uid, account.gid)
      await chown(secretFile, account.uid, account.gid)
    })
    // The builtin C.UTF-8 sorts by code point. Locales of libc and ICU change with system updates, which breaks indexes.
    const locale = ["--encoding=UTF8", "--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
    const login = [`--username=${Roles.databaseName}`, "--auth=scram-sha-256", `--pwfile=${secretFile}`]
    const sync = durable ? [] : ["--no-sync"]
    yield* step(host, "initdb", [
      "-D",
      directory,
      ...login,
      ...locale,
      "--data-checksums",
      "--no-instructions",
      ...sync
    ])
    const statements = [...Roles.roles(secret), `CREATE DATABASE ${Roles.databaseName}`, ...Roles.database]
    yield* runAlone(host, directory, durable, "postgres", statements)
    yield* attempt("finish the data", async () => {
      await rename(directory, dataOf(base))
      // Without this a power cut could undo the rename, and so lose everything committed since.
      const parent = await open(base)
      try {
        if (durable) await parent.sync()
      } finally {
        await parent.close()
      }
    })
  }).pipe(Effect.ensuring(Effect.ignore(removeUnfinished(base))))
})

/** Runs statements in a Postgres process without a server, as the superuser and without a password. */
const runAlone = (
  host: Host,
  directory: string,
  durable: boolean,
  database: string,
  statements: ReadonlyArray<string>
) => {
  const settings = {
    exit_on_error: "true",
    log_checkpoints: "off",
    fsync: durable ? "on" : "off",
    // A statement with a password must not become a part of an error.
    log_min_error_statement: "panic"
  }
  const flags = Object.entries(settings).flatMap(([name, value]) => ["-c", `${name}=${value}`])
  return step(host, "postgres", ["--single", "-D", directory, ...flags, database], `${statements.join("\n")}\n`)
}

const step = Effect.fnUntraced(function* (
  { account, base, binaries }: Host,
  what: string,
  args: ReadonlyArray<string>,
  input?: string
) {
  const { code, output } = yield* run(account, join(binaries.native, "bin", what), args, input).pipe(
    Effect.timeoutOrElse({
      duration: `${initLimitSeconds} seconds`,
      orElse: () => fail("InitFailed", `${what} did not end within ${initLimitSeconds} s in ${base}`)
    })
  )
  if (code !== 0) return yield* fail("InitFailed", `${what} failed in ${base}: ${output.trim()}`)
})

const removeUnfinished = Effect.fnUntraced(function* (base: string) {
  const names = (yield* whereExists("list the data", () => readdir(base))) ?? []
  for (const name of names.filter((name) => name.startsWith(unfinished))) {
    // Several attempts: the initdb of a killed run may still write there.
    yield* attempt(`remove ${name}`, () => rm(join(base, name), { recursive: true, force: true, maxRetries: 5 }))
  }
})

const checkMajor = Effect.fnUntraced(function* ({ base, binaries }: Host) {
  const found = (yield* attempt("read PG_VERSION", () => readFile(join(dataOf(base), "PG_VERSION"), plainFile))).trim()
  if (Number(found) === binaries.major) return
  return yield* fail(
    "IncompatibleMajor",
    `${base} holds data of Postgres ${found}, and the installed one is Postgres ${binaries.major}. ` +
      `Delete the data with npm run reset, or dump it with Postgres ${found} and restore it into a new directory.`
  )
})

/** Data of another layout gives the service another role's rights, so no server is started on it. */
const checkLayout = Effect.fnUntraced(function* (base: string) {
  const found = (yield* whereExists("read the layout", () => readFile(layoutOf(base), plainFile)))?.trim() ?? "1"
  if (found === layout) return
  return yield* fail(
    "IncompatibleLayout",
    `${base} holds data of another version of this service (layout ${found}, and not ${layout}). Delete it with npm run reset, or ` +
      "dump it with that version and restore it with this one."
  )
})

/** Removes the data of a server that does not run, its password and its log. */
export const removeAll = Effect.fnUntraced(function* (home: string, base: string) {
  yield* removeUnfinished(base)
  const files = [dataOf(base), dataOf(home), layoutOf(base), passwordOf(home), logOf(home), `${logOf(home)}.1`]
  yield* Effect.forEach(files, (file) => attempt(`remove ${file}`, () => rm(file, { recursive: true, force: true })))
})
