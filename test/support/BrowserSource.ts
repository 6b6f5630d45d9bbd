/** Where the Chromium of the tests and of `npm run screenshots` comes from. */
import { Effect, Schema, type Scope } from "effect"
import { execFile } from "node:child_process"
import { existsSync } from "node:fs"
import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import * as Path from "node:path"
import { promisify } from "node:util"

/** An executable Chromium, and the variables that it is started with. */
export interface BrowserSource {
  readonly path: string
  readonly env: Readonly<Record<string, string>>
}

/** There is no Chromium that runs here. */
export class NoBrowser extends Schema.TaggedError<NoBrowser>()("NoBrowser", { reason: Schema.String }) {
  override get message() {
    return `no Chromium runs on this machine: ${this.reason.trim()}. TEST_CHROMIUM may name another one (Debian's package is chromium)`
  }
}

/** Ten times what printing its version takes on a slow machine. */
const versionMillis = 30_000

const attempt = <A>(run: () => Promise<A>) =>
  Effect.tryPromise({
    try: run,
    catch: (error) => new NoBrowser({ reason: error instanceof Error ? error.message : String(error) })
  })

/**
 * Unpacks the package's Chromium, 200 MB, into `directory`. The package takes the directory from `TMPDIR`, where it would trust any file
 * named `chromium`, however little of it has been written; it reads the variable before its first wait.
 */
const unpack = async (directory: string): Promise<string> => {
  const { default: chromium } = await import("@sparticuz/chromium")
  const before = process.env["TMPDIR"]
  process.env["TMPDIR"] = directory
  const unpacked = chromium.executablePath()
  if (before === undefined) delete process.env["TMPDIR"]
  else process.env["TMPDIR"] = before
  return unpacked
}

const directory = Effect.acquireRelease(
  attempt(() => mkdtemp(Path.join(tmpdir(), "paid-once-browser-"))),
  (path) => Effect.promise(() => rm(path, { recursive: true, force: true }))
)

/** A machine without any fonts gets those of the package: a page without letters would look fine to most tests. */
const fonts = (path: string) =>
  existsSync("/etc/fonts/fonts.conf") ? {} : { FONTCONFIG_PATH: Path.join(path, "fonts") }

/** The one that `TEST_CHROMIUM` names, else the npm package's, which is removed at the end. It has told its version. */
export const acquire: Effect.Effect<BrowserSource, NoBrowser, Scope.Scope> = Effect.gen(function* () {
  const named = process.env["TEST_CHROMIUM"]
  const home = yield* directory
  const path = named ?? (yield* attempt(() => unpack(home)))
  const source = { path, env: named === undefined ? fonts(home) : {} }
  yield* attempt(() => promisify(execFile)(path, ["--no-sandbox", "--version"], { timeout: versionMillis }))
  return source
})
