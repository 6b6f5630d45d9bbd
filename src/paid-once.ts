#!/usr/bin/env node
/** The entry point. Signals are handled first; then the rest is imported, which takes most of a start. */
import { enableCompileCache } from "node:module"
import * as Path from "node:path"
import * as EarlySignals from "./cli/EarlySignals.ts"
import * as Resolving from "./cli/Resolving.ts"

EarlySignals.listen()
// Caches compiled code, which saves a third of a start. Without a writable directory it is compiled each time.
enableCompileCache(Path.resolve(import.meta.dirname, "../node_modules/.cache/paid-once/compiled"))
Resolving.install()
await import("./cli/PaidOnce.ts")
