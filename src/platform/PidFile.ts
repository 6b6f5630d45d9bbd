/** The id of the process in a file, for scripts that stop or kill the service. */
import { Effect, Layer, Schema } from "effect"
import { open, readdir, readFile, rm } from "node:fs/promises"
import * as Path from "node:path"
import * as DirectoryLock from "./DirectoryLock.ts"
import * as OwnDirectory from "./OwnDirectory.ts"

/** The data directory can't be made or written to, or belongs to somebody else. */
export class DataDirectoryUnusable extends Schema.TaggedError<DataDirectoryUnusable>()("DataDirectoryUnusable", {
  directory: Schema.String,
  reason: Schema.String
}) {
  override get message() {
    return `DATA_DIRECTORY: "${this.directory}" is not a directory that can be written to: ${this.reason}`
  }
}

/** The file of the first process. A further process has its id in the name. */
const first = "service.pid"
const further = (pid: number) => `service-${pid}.pid`
const isPidFile = (name: string) => /^service(-\d+)?\.pid$/.test(name)

/** Whether the process with this id is a service of ours: a file that outlived its process may name another program by now. */
const isOurs = async (pid: number): Promise<boolean> =>
  (await readFile(`/proc/${pid}/cmdline`, "utf8").catch(() => ""))
    .split("\0")
    // The file itself, which was TypeScript in former releases, or npm's link to it.
    .some((argument) => /(?:^|\/)paid-once(?:\.[jt]s)?$/.test(argument))

/** The id in the file; undefined where there is none, and for whatever is not a file of ours. */
const read = async (file: string): Promise<number | undefined> => {
  const pid = Number(await readFile(file, OwnDirectory.plainFile).catch(() => ""))
  return pid > 0 ? pid : undefined
}

/** The files of processes, by their paths. */
const filesIn = async (directory: string) =>
  (await readdir(directory).catch(() => [])).filter(isPidFile).map((name) => Path.join(directory, name))

/** The ids of the living processes that wrote a file into `directory`. */
export const living = async (directory: string): Promise<ReadonlyArray<number>> => {
  const pids = await Promise.all((await filesIn(directory)).map(read))
  const ours = await Promise.all(pids.map(async (pid) => pid !== undefined && (await isOurs(pid))))
  return pids.filter((pid, index) => pid !== undefined && ours[index]) as ReadonlyArray<number>
}

/** Writes this process's id into a new file, and returns its path. Only under the directory's lock. */
const write = async (directory: string): Promise<string> => {
  for (const file of await filesIn(directory)) {
    const pid = await read(file)
    if (pid === undefined || pid === process.pid || !(await isOurs(pid))) await rm(file)
  }
  const make = async (name: string) => {
    // "wx" fails where there is anything, a link included.
    const handle = await open(Path.join(directory, name), "wx", 0o600)
    try {
      await handle.writeFile(`${process.pid}\n`)
    } finally {
      await handle.close()
    }
    return Path.join(directory, name)
  }
  return make(first).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== "EEXIST") throw error
    return make(further(process.pid))
  })
}

/**
 * Keeps the process's id in a file of `directory` while the layer lives: in `service.pid`, or where a living process has that one, in
 * `service-<id>.pid`. Files of dead processes are removed. No process changes or removes the file of another living one.
 */
export const layer = (directory: string): Layer.Layer<never, DataDirectoryUnusable> =>
  Layer.effectDiscard(
    Effect.suspend(() => {
      const attempt = <A>(step: () => Promise<A>) =>
        Effect.tryPromise({
          try: step,
          catch: (error) => new DataDirectoryUnusable({ directory, reason: (error as Error).message })
        })
      return Effect.acquireRelease(
        attempt(() => OwnDirectory.make(directory)).pipe(
          Effect.andThen(
            DirectoryLock.withLock(
              directory,
              attempt(() => write(directory))
            )
          ),
          Effect.catchTag("DirectoryLocked", ({ reason }) =>
            Effect.fail(new DataDirectoryUnusable({ directory, reason }))
          )
        ),
        (file) =>
          Effect.promise(async () => {
            if ((await read(file)) === process.pid) await rm(file, { force: true })
          })
      )
    })
  )
