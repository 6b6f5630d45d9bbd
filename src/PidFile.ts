/** The process's id in a file, for scripts that want to stop or kill it. */
import { Effect, Layer } from "effect"
import { mkdir, readFile, rm, writeFile } from "node:fs/promises"
import * as Path from "node:path"

/** Writes `service.pid` while the layer lives. Of several processes the last to start stands in it, and only it takes it away. */
export const layer = (directory: string): Layer.Layer<never> =>
  Layer.effectDiscard(
    Effect.suspend(() => {
      const file = Path.join(directory, "service.pid")
      const own = `${process.pid}\n`
      return Effect.acquireRelease(
        Effect.promise(async () => {
          await mkdir(directory, { recursive: true })
          await writeFile(file, own)
        }),
        () =>
          Effect.promise(async () => {
            if ((await readFile(file, "utf8").catch(() => "")) === own) await rm(file, { force: true })
          })
      )
    })
  )
