/** What a picture consists of: the scenes of each size, in the order of their worth. What no longer fits into the time is left out, and named. */
import { ours, simplest } from "../outside/Contenders.ts"
import type { Contender } from "../outside/Contenders.ts"
import type { Disturbance } from "../outside/Recovery.ts"
import * as Peers from "../outside/Peers.ts"

/** The limit of time for a whole picture, with the start of Postgres and Kafka: a little less than is promised, since a scene may take longer. */
export const modes = {
  quick: { limitSeconds: 90 },
  usual: { limitSeconds: 570 },
  full: { limitSeconds: Number.POSITIVE_INFINITY }
} as const
export type Mode = keyof typeof modes

/** A steady load for several contenders, who take turns. */
export interface LoadScene {
  readonly kind: "load"
  readonly title: string
  readonly rate: number
  readonly rounds: number
  readonly seconds: number
  readonly warmUpSeconds: number
  readonly contenders: ReadonlyArray<Contender>
  readonly aggregates?: number
  readonly dataBytes?: number
  readonly connections?: number
  /** Processes of each relay. */
  readonly relays?: number
  /** A transaction that was open since before these events were published. */
  readonly oldReader?: { readonly published: number }
  /** Rows that lie in the archive. */
  readonly archived?: number
  /** Whether the limits of the issue count here. Where they don't, the row stands without one. */
  readonly isLimited: boolean
}

/** A scene, with the seconds that it is likely to take on two cores. */
export type Scene =
  | (LoadScene & { readonly about: number })
  | {
      readonly kind: "backlog"
      readonly title: string
      readonly rounds: number
      readonly events: number
      readonly contenders: ReadonlyArray<Contender>
      readonly isLimited: boolean
      readonly about: number
    }
  | {
      readonly kind: "together"
      readonly title: string
      readonly events: number
      readonly relays: ReadonlyArray<number>
      readonly about: number
    }
  | {
      readonly kind: "recovery"
      readonly title: string
      readonly disturbance: Disturbance
      readonly freezeSeconds: number
      readonly about: number
    }
  | {
      readonly kind: "requests"
      readonly title: string
      readonly rounds: number
      readonly seconds: number
      readonly warmUpSeconds: number
      readonly about: number
    }
  | {
      readonly kind: "drain"
      readonly title: string
      readonly rounds: number
      readonly events: number
      readonly about: number
    }
  | { readonly kind: "flat"; readonly title: string; readonly archived: number; readonly about: number }

const withArchive = [simplest("on", "on"), ours("on")]
const withoutArchive = [simplest("off", "off"), ours("off")]
const others = Peers.all.filter((peer) => peer !== Peers.libraryReplication)

/** A run's time beside its load: the reader, the writer, the relay, and the end of all three. It was 3.8 s at 500/s, and 4.2 s at 100/s. */
const besideSeconds = 4.2

const load = (scene: Omit<LoadScene, "kind">): Scene => {
  const once = besideSeconds + 2 * scene.seconds + scene.warmUpSeconds + (scene.oldReader === undefined ? 0 : 6)
  return { kind: "load", ...scene, about: once * scene.rounds * scene.contenders.length }
}
const steady = (rate: number, options: Partial<LoadScene> = {}): Scene =>
  load({
    title: `${rate}/s`,
    rate,
    rounds: 1,
    seconds: 4,
    warmUpSeconds: 3,
    contenders: withArchive,
    isLimited: true,
    ...options
  })
const backlog = (contenders: ReadonlyArray<Contender>, events: number, rounds: number, isLimited: boolean): Scene => ({
  kind: "backlog",
  title: `a backlog of ${events}`,
  rounds,
  events,
  contenders,
  isLimited,
  about: contenders.length * rounds * (besideSeconds + events / 10_000)
})
const recovery = (disturbance: Disturbance, freezeSeconds: number): Scene => ({
  kind: "recovery",
  title: {
    kill: "kill -9",
    freeze: `SIGSTOP for ${freezeSeconds} s`,
    outage: `Kafka stands still for ${freezeSeconds} s`
  }[disturbance],
  disturbance,
  freezeSeconds,
  about: 2 * (2 * besideSeconds + 8 + (disturbance === "kill" ? 0 : freezeSeconds))
})
const requests = (size: {
  readonly rounds: number
  readonly seconds: number
  readonly warmUpSeconds: number
}): Scene => ({
  kind: "requests",
  title: "requests",
  ...size,
  // Three kinds of requests at three servers.
  about: 8 + 9 * (size.rounds * size.seconds + size.warmUpSeconds)
})

const quick: ReadonlyArray<Scene> = [
  steady(500, { seconds: 4, warmUpSeconds: 2 }),
  backlog(withArchive, 50_000, 1, true),
  requests({ rounds: 1, seconds: 1, warmUpSeconds: 1 })
]

/** An aggregate's next event is written while its last one is still under way: where a relay reorders, it shows here. */
const orders: Scene = steady(500, {
  title: "500/s, 4 aggregates, two relays",
  aggregates: 4,
  relays: 2,
  seconds: 4,
  warmUpSeconds: 0,
  contenders: [ours("on"), Peers.popular, Peers.graphileWorker],
  isLimited: false
})

const usual: ReadonlyArray<Scene> = [
  steady(500, { rounds: 2 }),
  backlog(withArchive, 100_000, 1, true),
  steady(500, {
    title: "500/s, others",
    contenders: others.filter((peer) => peer !== Peers.graphileWorkerQueues),
    seconds: 3,
    warmUpSeconds: 2,
    isLimited: false
  }),
  orders,
  steady(2_000, { seconds: 3 }),
  // After three seconds V8 still compiles a read, and its ratio was 0.55 in place of 0.74.
  requests({ rounds: 1, seconds: 1, warmUpSeconds: 6 }),
  recovery("kill", 0),
  recovery("outage", 10),
  { kind: "together", title: "several dispatchers", events: 100_000, relays: [1, 2, 4], about: 36 },
  steady(500, { title: "500/s, old reader", oldReader: { published: 100_000 }, warmUpSeconds: 0 }),
  steady(500, { title: "500/s, 4 kB", dataBytes: 4_096, warmUpSeconds: 0 }),
  recovery("freeze", 10),
  ...[1, 16].map((aggregates) =>
    steady(500, { title: `500/s, ${aggregates} aggregates`, aggregates, warmUpSeconds: 0, seconds: 3 })
  ),
  backlog([Peers.popular, Peers.pgBoss, Peers.graphileWorker], 10_000, 1, false)
]

const full: ReadonlyArray<Scene> = [
  ...[100, 500, 2_000, 5_000].map((rate) =>
    steady(rate, { rounds: 3, seconds: 10, warmUpSeconds: 10, connections: rate > 2_000 ? 20 : 4 })
  ),
  ...[100, 500, 2_000].map((rate) =>
    steady(rate, {
      title: `${rate}/s, others`,
      seconds: 10,
      warmUpSeconds: 10,
      contenders: Peers.all,
      isLimited: false
    })
  ),
  backlog(withArchive, 200_000, 3, true),
  backlog(withoutArchive, 200_000, 3, true),
  backlog(others, 20_000, 1, false),
  orders,
  ...[1, 4, 16].map((aggregates) =>
    steady(500, { title: `500/s, ${aggregates} aggregates`, aggregates, rounds: 3, seconds: 10 })
  ),
  steady(500, { title: "500/s, 4 kB", dataBytes: 4_096, rounds: 3, seconds: 10 }),
  steady(500, { title: "500/s, old reader", oldReader: { published: 300_000 }, rounds: 3, seconds: 10 }),
  { kind: "together", title: "several dispatchers", events: 300_000, relays: [1, 2, 4], about: 90 },
  recovery("kill", 0),
  recovery("freeze", 10),
  recovery("outage", 20),
  { kind: "drain", title: "drain beside its parts", rounds: 3, events: 150_000, about: 120 },
  requests({ rounds: 3, seconds: 4, warmUpSeconds: 10 }),
  { kind: "flat", title: "statements beside ten million archived rows", archived: 10_000_000, about: 600 },
  steady(500, { title: "500/s, ten million archived", archived: 10_000_000, seconds: 10, warmUpSeconds: 10 })
]

export const plans: Readonly<Record<Mode, ReadonlyArray<Scene>>> = { quick, usual, full }

/** Whether the plan needs a Postgres with `wal_level = logical`. */
export const needsLogical = (scenes: ReadonlyArray<Scene>): boolean =>
  scenes.some((scene) => "contenders" in scene && scene.contenders.includes(Peers.libraryReplication))
