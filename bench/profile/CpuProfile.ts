/** A process's CPU by step, from the samples that V8 took of it (`--cpu-prof`). */
import { readdirSync, readFileSync } from "node:fs"
import * as Path from "node:path"

/** The parts of a `.cpuprofile` that are read. Times are microseconds of the machine's monotonic clock. */
export interface CpuProfile {
  readonly startTime: number
  readonly nodes: ReadonlyArray<{ readonly id: number; readonly callFrame: CallFrame }>
  /** The node that ran at each sample. */
  readonly samples: ReadonlyArray<number>
  /** The time between a sample and the one before it. */
  readonly timeDeltas: ReadonlyArray<number>
}

interface CallFrame {
  readonly functionName: string
  readonly url: string
}

/** Functions without a file that write to a socket or read from it: the kernel's work is in them. */
const socketCalls = /^(write\w*|readStart|shutdown|connect\w*|onStreamRead)$/
const socketFiles = /^node:(internal\/)?(net|_?tls|tls_wrap|_?stream|streams|stream_base_commons|dgram)/

/** The step that a function belongs to; undefined while the process waits. */
export const stepOf = ({ functionName, url }: CallFrame): string | undefined => {
  if (functionName === "(idle)") return undefined
  if (functionName === "(garbage collector)") return "garbage collector"
  if (functionName === "(program)" || functionName === "(root)") return "V8 and the kernel"
  const dependency = /node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(url)?.[1]
  if (dependency === "kafkajs") return "kafkajs"
  if (dependency === "@effect/sql-pg") return "driver"
  if (dependency?.startsWith("@effect/") === true || dependency === "effect") {
    return /\/sql\//i.test(url) ? "effect, SQL" : /http/i.test(url) ? "effect, HTTP" : "effect"
  }
  if (dependency !== undefined) return "other packages"
  const room = /\/src\/([^/]+)\//.exec(url)?.[1]
  if (room !== undefined) return `ours: ${room}`
  if (/\/(src|bench)\/[^/]+$/.test(url)) return "ours: main"
  if (socketFiles.test(url) || (url === "" && socketCalls.test(functionName))) return "sockets"
  if (/^node:(internal\/)?_?http/.test(url)) return "Node's HTTP"
  return "other parts of Node"
}

/** Microseconds of each step between two times of the machine's clock, in milliseconds. */
export const steps = (
  { nodes, samples, startTime, timeDeltas }: CpuProfile,
  window: { readonly from: number; readonly to: number }
): ReadonlyMap<string, number> => {
  const byId = new Map(nodes.map(({ callFrame, id }) => [id, stepOf(callFrame)]))
  const found = new Map<string, number>()
  let time = startTime
  samples.forEach((id, index) => {
    const micros = timeDeltas[index] ?? 0
    time += micros
    const step = byId.get(id)
    if (step === undefined || time < window.from * 1_000 || time > window.to * 1_000) return
    // A sample stands for the time up to the next one, and a delta that is negative for none.
    found.set(step, (found.get(step) ?? 0) + Math.max(0, timeDeltas[index + 1] ?? 0))
  })
  return found
}

/** The profile that a process has left in its directory. A process with workers leaves several: the main thread's is the largest. */
export const read = (directory: string): CpuProfile => {
  const files = readdirSync(directory)
    .filter((name) => name.endsWith(".cpuprofile"))
    .map((name) => readFileSync(Path.join(directory, name), "utf8"))
    .toSorted((one, other) => other.length - one.length)
  const [largest] = files
  if (largest === undefined) throw new Error(`the process has left no profile in ${directory}`)
  return JSON.parse(largest) as CpuProfile
}
