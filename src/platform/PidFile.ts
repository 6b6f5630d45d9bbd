/** The id of the process in a file, for scripts that stop or kill the service. */
import { Effect, Layer, Schema } from "effect"
import { mkdir, readFile, rm, writeFile } from "node:fs/promises"
import * as Path from "node:path"

/** The data directory can't be made or written to. */
export class DataDirectoryUnusable extends Schema.TaggedError<DataDirectoryUnusable>()("DataDirectoryUnusable", {
  directory: Schema.String,
  reason: Schema.String
}) {
  override get message() {
    return `DATA_DIRECTORY: "${this.directory}" is not a directory that can be written to: ${this.reason}`
  }
}

/** The directory and those above it, from the root down. */
const path = (directory: string): ReadonlyArray<string> => {
  const parent = Path.dirname(directory)
  return parent === directory ? [directory] : [...path(parent), directory]
}

/** Makes the directory, one level after the other: Node's own recursion never ends below a directory like /proc. */
const makeDirectory = async (directory: string): Promise<void> => {
  for (const level of path(Path.resolve(directory))) {
    await mkdir(level).catch((error: NodeJS.ErrnoException) => {
      // EACCES and EROFS also come for a level that exists. If it is missing, the next level fails.
      if (error.code !== "EEXIST" && error.code !== "EACCES" && error.code !== "EROFS") throw error
    })
  }
}

/** Whether the process with this id is a service of ours: a file that outlived its process may name another program by now. */
const isOurs = async (pid: number): Promise<boolean> =>
  (await readFile(`/proc/${pid}/cmdline`, "utf8").catch(() => ""))
    .split("\0")
    // The file itself, or npm's link to it.
    .some((argument) => /(?:^|\/)paid-once(?:\.ts)?$/.test(argument))

/**
 * Keeps `service.pid` while the layer lives. With several processes it names the first one, for as long as that lives. A process deletes only a
 * file that names itself.
 */
export const layer = (directory: string): Layer.Layer<never, DataDirectoryUnusable> =>
  Layer.effectDiscard(
    Effect.suspend(() => {
      const file = Path.join(directory, "service.pid")
      const own = `${process.pid}\n`
      return Effect.acquireRelease(
        Effect.tryPromise({
          try: async () => {
            await makeDirectory(directory)
            const other = Number(await readFile(file, "utf8").catch(() => ""))
            if (other > 0 && (await isOurs(other))) return
            await writeFile(file, own)
          },
          catch: (error) => new DataDirectoryUnusable({ directory, reason: (error as Error).message })
        }),
        () =>
          Effect.promise(async () => {
            if ((await readFile(file, "utf8").catch(() => "")) === own) await rm(file, { force: true })
          })
      )
    })
  )
