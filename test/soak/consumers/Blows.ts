/** Faults against consumers: their processes, the brokers and leaders that they read from, and their database sessions. */
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

/** The wait between two faults. Some faults begin while the system still recovers from the last one. */
const calmMillis = [200, 3_000] as const

/** The points where a crash leaves most work unfinished. */
const faultPoints = ["after-decode", "before-handler", "before-commit", "after-commit", "after-offset"]

/** Enough for a crash, a session timeout and some rebalances of four groups on a busy machine. */
const patience = "90 seconds"

interface Slot {
  member: ServiceProcess.ServiceProcess
}

export interface World {
  readonly admin: Admin
  readonly brokers: ReadonlyArray<LocalKafka.Broker>
  readonly consumers: number
  /** The groups' names in Kafka. */
  readonly groups: ReadonlyArray<string>
  /** Starts a consumer process with these faults. */
  readonly launch: (faults: string) => Effect.Effect<ServiceProcess.ServiceProcess, ServiceProcess.ServiceProcessFailed>
  readonly sessionTimeoutMillis: number
  readonly wireTopic: string
}

const pick = <A>(from: ReadonlyArray<A>) => Random.choice(from) as Effect.Effect<A>
const between = ([low, high]: readonly [number, number]) => Random.nextIntBetween(low, high)

/** Asks Kafka until the condition holds. It may lack a coordinator or a broker for a while. */
const until = (what: string, condition: () => Promise<boolean>, seen = () => "") =>
  Effect.tryPromise(condition).pipe(
    Effect.orElseSucceed(() => false),
    Effect.repeat({ until: (holds) => holds, schedule: Schedule.spaced("100 millis") }),
    Effect.timeoutOrElse({
      duration: patience,
      orElse: () => Effect.die(new Error(`waited ${patience} for ${what}${seen()}`))
    })
  )

/** Moves a partition's leadership to another node, and restores its replicas on all three. */
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
  /** Starts a consumer again if its start failed: its database session may have been ended just then. */
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
  /** SIGTERM at any moment must end the process with exit code 0. */
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
      // The broker has to recover its logs, which may take minutes on a busy machine.
      yield* Effect.retry(broker.start, { times: 4 })
    })
  /** Whether one fault happens at a time, so that the group can be waited for. */
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
        // The other members have its partitions, and it believes that it still owns them. In the random phase it may thaw a little earlier.
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
        // It may crash before it is ready.
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
    /** The number of finished faults. */
    fallen: () => over,
    /** Runs each fault once. Faults of members run one after the other, and the other faults run concurrently with them. */
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
    /** Random faults for that time: several members at once, together with one broker or all sessions. */
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
    /** Waits until every consumer is a member and its group is stable. */
    calm: joined(consumers),
    /** Stops the consumers, and checks that they stop cleanly. */
    stop: Effect.forEach(slots, ({ member }) => stop(member), { concurrency: "unbounded", discard: true })
  }
})
