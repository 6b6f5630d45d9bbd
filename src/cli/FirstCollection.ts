/**
 * A collection of the whole heap, once the program is loaded and before its work begins.
 *
 * Loading leaves garbage among objects that stay. V8 collects it when the heap has grown to a multiple, and an idle service never gets there: it kept
 * some 30 MB for ever. After a first collection V8 looks for more by itself as soon as there is little to do.
 */
import { Effect } from "effect"
import { setFlagsFromString } from "node:v8"
import { runInNewContext } from "node:vm"

/** Takes some 20 to 50 ms, in which nothing else runs. */
export const collect: Effect.Effect<void> = Effect.sync(() => {
  // Node gives `gc` to contexts that are made while the flag is set. It must not stay: compiled code is cached for a set of flags.
  setFlagsFromString("--expose-gc")
  const gc = runInNewContext("gc") as () => void
  setFlagsFromString("--no-expose-gc")
  gc()
})
