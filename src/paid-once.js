#!/usr/bin/env node
/** The entry point. Signals are handled first; then the rest is imported, which takes most of a start. */
import { enableCompileCache } from "node:module"
import * as Path from "node:path"
import { setFlagsFromString } from "node:v8"
import * as EarlySignals from "./cli/EarlySignals.ts"
import * as Resolving from "./cli/Resolving.ts"

EarlySignals.listen()
// V8 notes where objects are made that live for long, and makes them old from the start. While a service starts, it notes some places that are wrong for
// its requests. In most processes these were old, too, and stayed until the whole heap was collected. That took a sixth to a third of their CPU
// (docs/performance.md). Set before the cache below, which belongs to a set of flags.
setFlagsFromString("--no-allocation-site-pretenuring")
// Caches compiled code, which saves a third of a start. Without a writable directory it is compiled each time.
enableCompileCache(Path.resolve(import.meta.dirname, "../node_modules/.cache/paid-once/compiled"))
Resolving.install()
await import("./cli/PaidOnce.ts")
