/** What befalls consumers: their processes, the brokers and leaders that they read from, and their sessions at the database. */
import { Effect, Random, Schedule } from "effect"
import { SqlClient } from "effect/sql"
import type { Admin } from "kafkajs"
import type * as ServiceProcess from "../../../src/cli/ServiceProcess.ts"
import type * as LocalKafka from "../../support/LocalKafka.ts"

const ofMembers = ["kill -9", "frozen past the session", "SIGTERM", "join and leave", "crash at a fault point"] as const
const ofOthers = [
  "broker killed",
  "broker restarted",
  "leaders move",
  "coordinators move",
  "sessions terminated"
] as const
export type Name = (typeof ofMembers)[number] | (typeof ofOthers)[number]

/** Between two blows: some fall while the last one is still being put right. */
const calmMillis = [200, 3_000] as const

/** Behind these a crash leaves most undone. */
const faultPoints = ["after-decode", "before-handler", "before-commit", "after-commit", "after-offset"]

/** For a crash, a session and some rebalances of four groups on a busy machine together. */
const patience = "90 seconds"

interface Slot {
  member: ServiceProcess.ServiceProcess
}

export interface World {
  readonly admin: Admin
  readonly brokers: ReadonlyArray<LocalKafka.Broker>
  readonly consumers: number
  /** As Kafka knows them. */
  readonly groups: ReadonlyArray<string>
  /** A consumer's process, with these faults set. */
  readonly launch: (faults: string) => Effect.Effect<ServiceProcess.ServiceProcess, ServiceProcess.ServiceProcessFailed>
  readonly sessionTimeoutMillis: number
  readonly wireTopic: string
}

const pick = <A>(from: ReadonlyArray<A>) => Random.choice(from) as Effect.Effect<A>
const between = ([low, high]: readonly [number, number]) => Random.nextIntBetween(low, high)

/** Asks Kafka until it answers so: it may be without a coordinator or a broker for a while. */
const until = (what: string, condition: () => Promise<boolean>, seen = () => "") =>
  Effect.tryPromise(condition).pipe(
    Effect.orElseSucceed(() => false),
    Effect.repeat({ until: (holds) => holds, schedule: Schedule.spaced("100 millis") }),
    Effect.timeoutOrElse({
      duration: patience,
      orElse: () => Effect.die(new Error(`waited ${patience} for ${what}${seen()}`))
    })
  )

/** Gives a partition's leadership to another node, and its copies back to all three. */
const moveLeader = Effect.fnUntraced(function* (admin: Admin, topic: string, partition: number) {
  const assign = (replicas: Array<number>) =>
    Effect.andThen(
      Effect.ignore(
        Effect.tryPromise(() =>
          admin.alterPartitionReassignments({ topics: [{ topic, partitionAssignment: [{ partition, replicas }] }] })
        )
      ),
      until("a partition to have moved", async () => {
        const { topics } = await admin.listPartitionReassignments({ topics: [{ topic, partitions: [partition] }] })
        return topics.length === 0
      })
    )
  const metadata = yield* Effect.option(Effect.tryPromise(() => admin.fetchTopicMetadata({ topics: [topic] })))
  if (metadata._tag === "None") return
  const leader = metadata.value.topics[0]!.partitions.find(({ partitionId }) => partitionId === partition)!.leader
  const others = [1, 2, 3].filter((node) => node !== leader)
  yield* assign(others)
  yield* assign([...others, leader])
})

/** Starts the consumers. */
export const make = Effect.fnUntraced(function* ({
  admin,
  brokers,
  consumers,
  groups,
  launch,
  sessionTimeoutMillis,
  wireTopic
}: World) {
  const sql = yield* SqlClient.SqlClient
  const scope = yield* Effect.scope
  const problems: Array<string> = []
  const counts: Record<string, number> = {}
  /** Processes that are expected to end. */
  const doomed = new Set<number>()
  let over = 0

  const count = (what: string) => {
    counts[what] = (counts[what] ?? 0) + 1
  }
  /** Who is to run starts it again when it could not start: its session may have been ended just then. */
  const start = launch("off").pipe(
    Effect.tapError(() => Effect.sync(() => count("starts in vain"))),
    Effect.retry({ times: 5 }),
    Effect.tap((member) =>
      member.exit.pipe(
        Effect.tap((exit) =>
          Effect.sync(() => {
            if (!doomed.has(member.pid)) problems.push(`a consumer ended by itself with ${exit}: ${member.output()}`)
          })
        ),
        Effect.forkIn(scope)
      )
    )
  )
  const kill = (member: ServiceProcess.ServiceProcess) =>
    Effect.suspend(() => {
      doomed.add(member.pid)
      return Effect.andThen(member.signal("SIGKILL"), member.exit)
    })
  /** Whatever it is at: it ends by itself, and says that nothing went wrong. */
  const stop = (member: ServiceProcess.ServiceProcess) =>
    Effect.gen(function* () {
      doomed.add(member.pid)
      yield* member.signal("SIGTERM")
      const exit = yield* member.exit
      if (exit !== 0) problems.push(`SIGTERM ended a consumer with ${exit}: ${member.output()}`)
    })
  const slots = yield* Effect.forEach(
    Array.from({ length: consumers }),
    () => Effect.map(start, (member): Slot => ({ member })),
    { concurrency: "unbounded" }
  )
  const joined = (count: number) =>
    Effect.suspend(() => {
      let last = "nothing"
      return until(
        `stable groups of ${count}`,
        async () => {
          const { groups: found } = await admin.describeGroups([...groups])
          last = found.map(({ groupId, members, state }) => `${groupId} ${state}, ${members.length} members`).join("; ")
          return found.every(({ members, state }) => state === "Stable" && members.length === count)
        },
        () => `, and saw at last: ${last}; ${slots.map(({ member }) => `${member.pid}: ${member.output()}`).join("\n")}`
      )
    })
  yield* joined(consumers)

  const restart = (stopNode: (broker: LocalKafka.Broker) => Effect.Effect<void, LocalKafka.LocalKafkaError>) =>
    Effect.gen(function* () {
      const broker = yield* pick(brokers)
      yield* stopNode(broker)
      yield* Effect.flatMap(between([500, 5_000]), Effect.sleep)
      // It has its logs to look through, beside all that runs here: some minutes if need be.
      yield* Effect.retry(broker.start, { times: 4 })
    })
  /** Whether one blow falls at a time, and the group may be waited for. */
  let isAlone = false
  const blows: Readonly<Record<Name, (slot: Slot) => Effect.Effect<unknown, unknown>>> = {
    "kill -9": (slot) =>
      Effect.gen(function* () {
        yield* kill(slot.member)
        slot.member = yield* start
      }),
    "frozen past the session": ({ member }) =>
      Effect.gen(function* () {
        if (isAlone) yield* joined(consumers)
        yield* member.signal("SIGSTOP")
        // The others have its partitions, and it believes that it still has them. (At random it wakes a little before that, too.)
        yield* isAlone
          ? joined(consumers - 1)
          : Effect.flatMap(between([sessionTimeoutMillis * 0.8, sessionTimeoutMillis * 3]), Effect.sleep)
        yield* member.signal("SIGCONT")
      }),
    SIGTERM: (slot) =>
      Effect.gen(function* () {
        yield* stop(slot.member)
        slot.member = yield* start
      }),
    "join and leave": () => Effect.flatMap(start, stop),
    "crash at a fault point": (slot) =>
      Effect.gen(function* () {
        yield* kill(slot.member)
        const point = yield* pick(faultPoints)
        // It may be dead before it is ready.
        const doomed = yield* Effect.option(launch(`consumer.${point}=crash`))
        if (doomed._tag === "Some") {
          yield* Effect.timeoutOption(doomed.value.exit, "15 seconds")
          yield* kill(doomed.value)
        }
        slot.member = yield* start
      }),
    "broker killed": () => restart(({ kill }) => kill),
    "broker restarted": () => restart(({ stop }) => stop),
    "leaders move": () =>
      Effect.forEach(
        Array.from({ length: 3 }),
        () => Effect.flatMap(Random.nextIntBetween(0, 7), (partition) => moveLeader(admin, wireTopic, partition)),
        { discard: true }
      ),
    "coordinators move": () =>
      Effect.flatMap(Random.nextIntBetween(0, 3), (partition) => moveLeader(admin, "__consumer_offsets", partition)),
    "sessions terminated": () => sql`
      SELECT pg_terminate_backend(pid) FROM pg_stat_activity
      WHERE datname = current_database() AND application_name LIKE 'paid-once%'`
  }
  const strike = (name: Name, slot: Slot) =>
    Effect.suspend(() => {
      count(name)
      return Effect.orDie(blows[name](slot))
    })

  return {
    problems: (): ReadonlyArray<string> => problems,
    counts: (): Readonly<Record<string, number>> => counts,
    /** How many blows are over. */
    fallen: () => over,
    /** Each of these once: those of members one after the other, and those of others beside them. */
    each: (names: ReadonlyArray<Name>) =>
      Effect.gen(function* () {
        isAlone = true
        const isOfMember = (name: Name) => ofMembers.some((one) => one === name)
        const run = Effect.fnUntraced(function* (some: ReadonlyArray<Name>) {
          for (const name of some) {
            yield* strike(name, yield* pick(slots))
            over += 1
          }
        })
        yield* Effect.all([run(names.filter(isOfMember)), run(names.filter((name) => !isOfMember(name)))], {
          concurrency: "unbounded"
        })
      }),
    /** At random, for so long: several members at a time, and one broker or all sessions beside them. */
    rain: (millis: number) =>
      Effect.gen(function* () {
        const endMillis = performance.now() + millis
        const strikes = (names: ReadonlyArray<Name>, slot: Slot) =>
          Effect.gen(function* () {
            while (performance.now() < endMillis) {
              yield* strike(yield* pick(names), slot)
              yield* Effect.flatMap(between(calmMillis), Effect.sleep)
            }
          })
        yield* Effect.forEach(
          [...slots.map((slot) => [ofMembers, slot] as const), [ofOthers, slots[0]!] as const],
          ([names, slot]) => strikes(names, slot),
          { concurrency: "unbounded", discard: true }
        )
      }),
    /** Everybody is there, and nobody is told to go. */
    calm: joined(consumers),
    /** Stops the consumers, which have to end as they should. */
    stop: Effect.forEach(slots, ({ member }) => stop(member), { concurrency: "unbounded", discard: true })
  }
})
