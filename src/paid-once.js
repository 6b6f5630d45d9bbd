#!/usr/bin/env node
/**
 * The entry point. Signals are handled before the program is imported, which takes most of a start.
 *
 * It is JavaScript, and imports nothing of ours before the cache. For the first TypeScript that is not in there Node loads a compiler, which takes a tenth
 * of a second and stays in memory, with some 15 MB.
 */
import { enableCompileCache } from "node:module"
import * as Path from "node:path"
import { setFlagsFromString } from "node:v8"

// V8 notes where objects are made that live for long, and makes them old from the start. While a service starts, it notes some places that are wrong for
// its requests. In most processes these were old, too, and stayed until the whole heap was collected. That took a sixth to a third of their CPU
// (docs/performance-log.md). Set before the cache below, which belongs to a set of flags.
setFlagsFromString("--no-allocation-site-pretenuring")
// V8 takes a service at a steady rate for nearly idle, and would collect its old heap each time that has grown by a few megabytes. Its threads then keep
// two processors busy for some 50 ms. Node refuses this flag in NODE_OPTIONS, so it is set here.
setFlagsFromString("--heap-growing-percent=200")
// Caches compiled code, which saves a third of a start. Without a writable directory it is compiled each time.
enableCompileCache(Path.resolve(import.meta.dirname, "../node_modules/.cache/paid-once/compiled"))

const { listen } = await import("./cli/EarlySignals.ts")
listen()
const { install } = await import("./cli/Resolving.ts")
install()
await import("./cli/PaidOnce.ts")
