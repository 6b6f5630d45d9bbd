/**
 * CPU seconds by part: this Node, Postgres with all its processes, and Kafka. The last two are read from /proc, and are undefined if they
 * don't run on this machine.
 */
import { Effect } from "effect"
import { readdirSync, readFileSync } from "node:fs"
import { Side } from "./Environment.ts"

export interface CpuSeconds {
  readonly node: number
  readonly postgres: number | undefined
  readonly kafka: number | undefined
}

/** The kernel's clock tick, USER_HZ: 100 on every Linux that Node runs on. */
const ticksPerSecond = 100

interface ProcessTimes {
  readonly pid: number
  readonly parent: number
  /** Its own CPU time, and that of its ended children. */
  readonly seconds: number
}

/** The process's line in /proc; undefined if it has just ended. */
const timesOf = (pid: number): ProcessTimes | undefined => {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8")
    // The name in brackets may contain anything; the fields after it are numbers.
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ")
    const ticks = [11, 12, 13, 14].reduce((sum, index) => sum + Number(fields[index]), 0)
    return { pid, parent: Number(fields[1]), seconds: ticks / ticksPerSecond }
  } catch {
    return undefined
  }
}

/** The CPU seconds of one process so far; of one that has ended, not a number. */
export const secondsOf = (pid: number): number => timesOf(pid)?.seconds ?? Number.NaN

const processes = (): ReadonlyArray<ProcessTimes> =>
  readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .flatMap((name) => timesOf(Number(name)) ?? [])

/** Only a Kafka that this process has started serves this run alone. */
const isOurKafka = ({ parent, pid }: ProcessTimes): boolean => {
  if (parent !== process.pid) return false
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8").includes("kafka.Kafka")
  } catch {
    return false
  }
}

/** The process of the Kafka that this process has started; undefined if it uses another one. */
export const kafkaPid = (): number | undefined => processes().find(isOurKafka)?.pid

/** The CPU seconds of each part so far. */
export const sample = Effect.gen(function* () {
  const sql = yield* Side
  const [row] = yield* sql<{ readonly pid: number; readonly local: boolean }>`
    SELECT pg_backend_pid() AS pid, coalesce(inet_server_addr() <<= '127.0.0.0/8', true) AS local`
  return yield* Effect.sync((): CpuSeconds => {
    const { system, user } = process.cpuUsage()
    const all = processes()
    const postmaster = row?.local === true ? timesOf(row.pid)?.parent : undefined
    const ofPostgres = all.filter(({ parent, pid }) => pid === postmaster || parent === postmaster)
    const ofKafka = all.filter(isOurKafka)
    const sum = (group: ReadonlyArray<ProcessTimes>) =>
      group.length === 0 ? undefined : group.reduce((total, { seconds }) => total + seconds, 0)
    return { node: (system + user) / 1e6, postgres: sum(ofPostgres), kafka: sum(ofKafka) }
  })
})

/** The CPU seconds of each part between two samples. */
export const between = (before: CpuSeconds, after: CpuSeconds): CpuSeconds => ({
  node: after.node - before.node,
  postgres: subtract(after.postgres, before.postgres),
  kafka: subtract(after.kafka, before.kafka)
})

const subtract = (a: number | undefined, b: number | undefined) =>
  a === undefined || b === undefined ? undefined : a - b
