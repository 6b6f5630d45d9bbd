/**
 * A small disk of a test's own, which it fills and frees: a tmpfs. To mount it takes root, or a `sudo` without a password. A process-wide
 * limit on file sizes would need neither, but Postgres answers it with an internal error.
 */
import { Effect } from "effect"
import { execFile, spawnSync } from "node:child_process"
import { mkdtemp, open, rm, statfs } from "node:fs/promises"
import { tmpdir } from "node:os"
import * as Path from "node:path"
import { promisify } from "node:util"

const execute = promisify(execFile)
const prefix = process.getuid?.() === 0 ? [] : ["sudo", "-n"]
const asRoot = (...args: ReadonlyArray<string>) => execute([...prefix, ...args][0]!, [...prefix, ...args].slice(1))

/**
 * Whether this process may mount, in a mount namespace that ends with the try. A machine that refuses it is told of. In CI the tests run
 * nevertheless, and fail.
 */
export const canMount = (() => {
  const [command, ...args] = [...prefix, "unshare", "--mount", "mount", "-t", "tmpfs", "none", tmpdir()]
  const isAllowed = spawnSync(command, args).status === 0
  if (!isAllowed) process.stderr.write("NOT RUN: the tests of a full disk, for they mount a tmpfs: run them as root\n")
  return isAllowed || process.env["CI"] === "true"
})()

/** An empty disk of `megabytes`, until the scope closes. */
export const make = Effect.fnUntraced(function* (megabytes: number) {
  const directory = yield* Effect.acquireRelease(
    Effect.promise(async () => {
      const path = await mkdtemp(Path.join(tmpdir(), "paid-once-disk-"))
      await asRoot("mount", "-t", "tmpfs", "-o", `size=${megabytes}m,mode=1777`, "none", path)
      return path
    }),
    (path) =>
      Effect.promise(async () => {
        await asRoot("umount", path)
        await rm(path, { recursive: true, force: true })
      })
  )
  const ballast = Path.join(directory, "ballast")
  return {
    directory,
    /** Leaves no block free. */
    fill: Effect.promise(async () => {
      const file = await open(ballast, "a")
      try {
        while (true) {
          const { bavail, bsize } = await statfs(directory)
          if (bavail === 0) return
          await file.write(Buffer.alloc(Math.min(bavail * bsize, 1 << 20)))
        }
      } catch (cause) {
        if ((cause as NodeJS.ErrnoException).code !== "ENOSPC") throw cause
      } finally {
        await file.close()
      }
    }),
    free: Effect.promise(() => rm(ballast, { force: true }))
  }
})
