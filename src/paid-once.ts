#!/usr/bin/env node
/** Where the process begins: signals are heard first, and only then is all the rest read, which takes most of a second. */
import { enableCompileCache } from "node:module"
import * as Path from "node:path"
import * as EarlySignals from "./cli/EarlySignals.ts"

EarlySignals.listen()
// What was compiled once is kept, which is a third of a start; where it can't be written, it is compiled each time.
enableCompileCache(Path.resolve(import.meta.dirname, "../node_modules/.cache/paid-once/compiled"))
await import("./cli/PaidOnce.ts")
