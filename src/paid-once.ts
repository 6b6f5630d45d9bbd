#!/usr/bin/env node
/** Where the process begins: signals are heard first, and only then is all the rest read, which takes most of a second. */
import * as EarlySignals from "./EarlySignals.ts"

EarlySignals.listen()
await import("./cli.ts")
