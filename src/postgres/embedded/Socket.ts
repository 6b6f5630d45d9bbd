/**
 * The directory of the server's Unix socket, which only the server's account can enter. While the server is down nobody else can take its
 * address, and the address never changes.
 */
import { Effect } from "effect"
import { lchown, lstat, mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises"
import { join } from "node:path"
import { plainFile } from "../../platform/OwnDirectory.ts"
import type { Host } from "./Account.ts"
import { dataOf } from "./Data.ts"
import { attempt, fail, whereExists } from "./Process.ts"

/** The socket's name in its directory. The number is Postgres' usual port, which clients add. */
export const socketName = ".s.PGSQL.5432"

const longestPath = 107 // bytes: the kernel's limit for a socket's path, without the final zero

/** Holds the path of the directory, where it is not the data's. */
const pointerOf = (home: string) => join(home, "sockets")

/**
 * The data's directory: Postgres itself checks that it belongs to its account alone. If its path is too long, the socket
 * is in a directory like it below /tmp. That one is made anew, under the same name, after somebody has cleared /tmp.
 */
export const socketDirectory = Effect.fn("EmbeddedPostgres.socketDirectory")(function* (
  home: string,
  { account, base }: Host
) {
  if (Buffer.byteLength(join(dataOf(base), socketName)) <= longestPath) return dataOf(base)
  const known = yield* whereExists("read the socket's directory", () => readFile(pointerOf(home), plainFile))
  const uid = account._tag === "OtherUser" ? account.uid : process.getuid?.()
  return yield* attempt("make the socket's directory", async () => {
    // Not below TMPDIR, which differs between processes and may be long itself.
    const directory = known ?? (await mkdtemp("/tmp/paid-once-"))
    if (known !== undefined) {
      await mkdir(directory, { mode: 0o700 }).catch((error: NodeJS.ErrnoException) => {
        if (error.code !== "EEXIST") throw error
      })
    }
    if (account._tag === "OtherUser") {
      const { uid: owner } = await lstat(directory)
      if (owner === 0) await lchown(directory, account.uid, account.gid)
    }
    const found = await lstat(directory)
    // Everybody may make files in /tmp.
    if (!found.isDirectory() || found.uid !== uid || (found.mode & 0o077) !== 0) {
      throw fail("WrongOwner", `${directory} belongs to somebody else: remove ${pointerOf(home)}`)
    }
    if (known === undefined) await writeFile(pointerOf(home), directory, { mode: 0o600 })
    return directory
  })
})

/** Removes what a killed server has left. Its number may be that of another process by now, and Postgres would refuse to start. */
export const removeLeftovers = (directory: string) =>
  Effect.forEach([socketName, `${socketName}.lock`], (name) =>
    attempt(`remove ${name}`, () => rm(join(directory, name), { force: true }))
  )

/** Removes the directory below /tmp, where there is one. Only while no server runs. */
export const removeSocketDirectory = Effect.fnUntraced(function* (home: string) {
  const known = yield* whereExists("read the socket's directory", () => readFile(pointerOf(home), plainFile))
  if (known === undefined) return
  yield* removeLeftovers(known)
  yield* attempt("remove the socket's directory", () => rm(known, { recursive: true, force: true }))
  yield* attempt("remove the path of the socket's directory", () => rm(pointerOf(home), { force: true }))
})
