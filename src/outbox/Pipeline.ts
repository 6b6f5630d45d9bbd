/**
 * Runs the dispatcher's steps for many lanes concurrently:
 *
 *     ready lanes ─→ turn ─→ a sender for each topic and partition ─→ acknowledgements ─→ the next turn
 *
 * - A *turn* fetches the lanes that are ready: all of them, but few of those with a backlog. Now and then it marks what was acknowledged, when its
 *   batches have gone to their senders. Under load the mark and the fetch are on their way together, and can share a packet.
 * - Each *sender* has one send in flight. No sender waits for another (Senders.ts).
 *
 * A lane has one batch for each topic at a time (rule 3): it is fetched again when its batches have ended, marked or not. Unmarked events are then
 * left out. Turns gather ready lanes and acknowledgements (Gathering.ts), so they grow with the load.
 */
import { type Cause, Deferred, Effect, Exit, Fiber, Function, type Scope } from "effect"
import * as Supervised from "../platform/Supervised.ts"
import { byLane, type Parcel } from "./Batches.ts"
import { Dispatcher } from "./Dispatcher.ts"
import type { Flights } from "./Flights.ts"
import * as Gathering from "./Gathering.ts"
import { dueLimit, type HeldEvent } from "./holds/Holds.ts"
import type { Lane } from "./Lane.ts"
import * as LaneByLane from "./LaneByLane.ts"
import { deal, InFlightSettings, loadOf } from "./LaneParts.ts"
import type { Batch } from "./Publisher.ts"
import { type Acknowledged, type QueuedEvent, QueueSettings } from "./Queue.ts"
import * as Senders from "./Senders.ts"
import type { StoppedLanes } from "./StoppedLanes.ts"
import { TurnConnection } from "./TurnConnection.ts"

/** The longest wait of turns or a poll that have lost their connection: no other process sends or marks this one's lanes. */
export const longestWaitMillis = 5_000

/** Acknowledgements that wait for a turn. */
interface Mark {
  readonly acknowledged: ReadonlyArray<Acknowledged>
  readonly isDone?: Deferred.Deferred<void>
  /** For all lanes: by an outage of Postgres. */
  readonly hasFailed?: boolean
}

const eventsOf = (marks: ReadonlyArray<Mark>) => marks.flatMap((mark) => mark.acknowledged.flatMap((run) => run.events))

/** See {@link make}. */
export interface Pipeline {
  /** The lane has a held aggregate whose head is due for its next attempt. */
  readonly wakeHeld: (lane: Lane) => void
  /** The lane belongs to another process now. */
  readonly forget: (lane: Lane) => void
  /** Shows health that turns without work are alive. */
  readonly stamp: Effect.Effect<void>
}

/** Works until the scope closes. Then sends in flight end and are marked, and no new one begins. */
export const make = Effect.fnUntraced(function* (options: {
  readonly flights: Flights
  readonly stopped: StoppedLanes
  /** An attempt of a held head ended in a defect. */
  readonly heldFailed: (lane: Lane, cause: Cause.Cause<never>) => Effect.Effect<void>
}): Effect.fn.Return<Pipeline, never, Dispatcher | Supervised.Fibers | Scope.Scope> {
  const { flights, heldFailed, stopped } = options
  const dispatcher = yield* Dispatcher
  const settings = yield* QueueSettings
  const { batches } = yield* InFlightSettings
  const enqueue = yield* Senders.make
  const gathering = yield* Gathering.make

  /** Lanes with heads whose next attempt is due, in the order in which they were found. */
  const due = new Set<Lane>()
  /** Acknowledgements whose mark failed alone. Their lane is marked before it is fetched again, so nothing is sent twice. */
  const unmarked = new Map<Lane, ReadonlyArray<Acknowledged>>()

  const fail = (lane: Lane, cause: Cause.Cause<unknown>) => {
    flights.of(lane).isFailed = true
    return stopped.failed(lane, cause)
  }
  const eachAlone = LaneByLane.make({ isStopping: flights.isStopping, fail })

  // --- the fetch of a turn

  /** Fetches these lanes, without the events with a `seq` in `without`, and adds their batches to `fetched`. */
  const fetchLanes = Effect.fnUntraced(function* (
    lanes: ReadonlyArray<Lane>,
    without: ReadonlySet<bigint>,
    fetched: Array<Parcel>
  ) {
    if (flights.isStopping()) return
    const parts = deal(lanes, { ...settings, batches, deep: flights.deep, load: flights.load() })
    const found = yield* dispatcher.fetch(parts, without)
    fetched.push(...found.batches)
    gathering.found(found.batches.reduce((sum, { events }) => sum + events.length, 0))
    flights.fetched(lanes, found, settings)
  })

  const fetchReady = (lanes: ReadonlyArray<Lane>, without: ReadonlySet<bigint>) => {
    const others = unmarked.size === 0 ? lanes : lanes.filter((lane) => !unmarked.has(lane))
    for (const lane of lanes) if (unmarked.has(lane)) markLate(lane)
    const fetched: Array<Parcel> = []
    const fetch = (some: ReadonlyArray<Lane>) => fetchLanes(some, without, fetched)
    return Effect.as(Effect.andThen(dispatcher.enter(lanes), eachAlone(others, Function.identity, fetch)), fetched)
  }

  /** Heads are queued behind the batches of their partition. Heads that don't fit into this round are sent in a later one. */
  const fetchHeads = Effect.fnUntraced(function* (lanes: ReadonlyArray<Lane>) {
    const turn = [...due].filter((lane) => lanes.includes(lane)).slice(0, dueLimit)
    if (turn.length === 0 || flights.isStopping()) return
    const heads = yield* dispatcher.heads(turn)
    for (const lane of turn) due.delete(lane)
    for (const lane of lanes) if (due.has(lane)) flights.of(lane).isWoken = true
    for (const head of heads) handOverHead(head)
  })

  // --- the senders

  /** Gives a sender work for these lanes. They are in flight until its end, and fail if it ends in a defect. */
  const give = (topic: string, partition: number | undefined, lanes: ReadonlyArray<Lane>, work: Senders.Work) => {
    flights.open(lanes)
    gathering.begin()
    const end = () => {
      gathering.end()
      flights.close(lanes)
    }
    enqueue(topic, partition, () =>
      Effect.suspend(work).pipe(
        Effect.catchCause((cause) => Effect.forEach(lanes, (lane) => fail(lane, cause), { discard: true })),
        Effect.ensuring(Effect.sync(end))
      )
    )
  }

  const handOver = (parcels: ReadonlyArray<Parcel>) => {
    for (const parcel of parcels) {
      const { events, partition, partitions, topic } = parcel
      const lanes = [...new Set(events.map(({ lane }) => lane))]
      give(topic, partition, lanes, () =>
        partition !== undefined && partitions !== undefined
          ? send({ topic, partition, partitions, events })
          : // The first events of a topic: each partition's sender gets its own.
            Effect.map(lanes.some(flights.isOurs) ? dispatcher.place(parcel) : Effect.succeed([]), handOver)
      )
    }
  }

  const handOverHead = (head: HeldEvent) => {
    const known = dispatcher.partitionOf(head)
    give(head.topic, known, [head.lane], () =>
      // Batches of its topic were placed ahead of it: it follows them to its partition's sender.
      known === undefined && dispatcher.partitionOf(head) !== undefined
        ? Effect.sync(() => handOverHead(head))
        : retry(head)
    )
  }

  const send = (batch: Batch): Effect.Effect<void> => {
    const marked = new Set<QueuedEvent>()
    const mark = (acknowledged: ReadonlyArray<Acknowledged>) => markPiece(acknowledged, marked)
    return dispatcher.send(batch, { isOurs: flights.isOurs, mark }).pipe(
      Effect.map(({ acknowledged, moved, returned }) => {
        for (const lane of moved) flights.of(lane).isStuck = false
        for (const lane of returned) flights.of(lane).isWoken = true
        addMark({ acknowledged })
      }),
      Effect.catchCause((cause) => {
        const parts = [...byLane(batch.events.filter((event) => !marked.has(event)))]
        if (parts.length === 1) return fail(parts[0]![0], cause)
        // The failing lane is unknown, so each lane is sent by itself.
        return Effect.forEach(parts, ([, events]) => send({ ...batch, events }), { discard: true })
      })
    )
  }

  const retry = (head: HeldEvent): Effect.Effect<void> =>
    (flights.isOurs(head.lane) ? dispatcher.retry(head) : Effect.void).pipe(
      Effect.catchCause((cause) => {
        // The lane may have been found due again during the attempt, before the failure was known.
        due.delete(head.lane)
        return heldFailed(head.lane, cause)
      }),
      // The events behind the head may be in the queue again.
      Effect.andThen(Effect.sync(() => void (flights.of(head.lane).isWoken = true)))
    )

  // --- the mark of a turn

  const marks: Array<Mark> = []
  const addMark = (mark: Mark) => {
    if (marks.length === 0) gathering.acknowledged()
    flights.owe(mark.acknowledged.map(({ lane }) => lane))
    marks.push(mark)
    if (marks.length === 1 || isUrgent()) flights.isReady.openUnsafe()
  }

  /** If a batch is sent in pieces, each piece is marked before the next one is sent. */
  const markPiece = Effect.fnUntraced(function* (acknowledged: ReadonlyArray<Acknowledged>, marked: Set<QueuedEvent>) {
    const isDone = yield* Deferred.make<void>()
    addMark({ acknowledged, isDone })
    yield* Deferred.await(isDone)
    for (const { events } of acknowledged) for (const event of events) marked.add(event)
  })

  const markAll = Effect.suspend(() => {
    const taken = marks.splice(0)
    const runs = taken.flatMap(({ acknowledged }) => acknowledged)
    return eachAlone(
      [...byLane(runs)],
      ([lane]) => lane,
      (some) => dispatcher.mark(some.flatMap(([, ofLane]) => ofLane)),
      // Batches of the lane's other topics that failed before this one are not marked either.
      ([lane, ofLane]) => void unmarked.set(lane, [...new Set([...(unmarked.get(lane) ?? []), ...ofLane])])
    ).pipe(
      Effect.map(() => {
        for (const { isDone } of taken) if (isDone !== undefined) Deferred.doneUnsafe(isDone, Effect.void)
        flights.settle(runs.map(({ lane }) => lane))
      }),
      // They are marked after the turns' wait.
      Effect.onError(() => Effect.sync(() => marks.unshift(...taken.map((mark) => ({ ...mark, hasFailed: true })))))
    )
  })

  /** Marks the lane's late acknowledgements apart from all turns: a lock on one of their rows must not keep the turns waiting each time. */
  const markLate = (lane: Lane) => {
    flights.of(lane).isWoken = true
    const acknowledged = unmarked.get(lane)!
    // Deleted first: the mark may fail, and put them back, before `give` returns.
    unmarked.delete(lane)
    give("late marks", undefined, [lane], () =>
      dispatcher.mark(acknowledged).pipe(
        Effect.tapCause(() => Effect.sync(() => unmarked.set(lane, acknowledged))),
        Effect.provideService(TurnConnection, undefined)
      )
    )
  }

  // Its generator function is made once: one for each turn would fill V8's old heap (docs/performance-log.md).
  /** Few marks follow the fetch, when as a rule the senders have written its events. Many go ahead of it in one packet, and it does not read their rows. */
  const fetchAndMark = Effect.fnUntraced(function* (lanes: ReadonlyArray<Lane>) {
    gathering.fetches()
    const waiting = eventsOf(marks)
    const fetch = fetchReady(lanes, new Set(waiting.map(({ seq }) => seq)))
    if (isUrgent() || gathering.areMany(loadOf(waiting, settings))) {
      const marking = yield* Effect.forkChild(markAll, { startImmediately: true, uninterruptible: true })
      const fetched = yield* Effect.exit(fetch)
      yield* Fiber.join(marking)
      handOver(yield* fetched)
    } else {
      handOver(yield* fetch)
      if (marks.length > 0 && (isUrgent() || gathering.areMarksDue())) yield* Effect.andThen(Effect.yieldNow, markAll)
    }
    if (due.size > 0) yield* eachAlone(lanes, Function.identity, fetchHeads)
  })

  const turn = Effect.suspend(() => {
    flights.isReady.closeUnsafe()
    const lanes = flights.isStopping() ? [] : flights.board()
    return Effect.onExit(lanes.length === 0 ? markAll : fetchAndMark(lanes), (exit) =>
      Effect.sync(() => {
        // After a failure all of these lanes are ready again after the turns' wait.
        if (Exit.isFailure(exit)) flights.wake(lanes)
        flights.close(lanes)
        // A turn comes for what is not marked yet.
        if (marks.length > 0) flights.isReady.openUnsafe()
      })
    )
  })

  /** A backlog fills its batches at once, the next piece of a refused batch waits for the mark of this one, and nothing is sent before one that failed. */
  const isUrgent = () =>
    flights.deep.size > 0 || marks.some((mark) => mark.hasFailed || mark.isDone !== undefined) || flights.isStopping()
  const pause = Effect.suspend(() => {
    if (!flights.hasReady()) flights.isReady.closeUnsafe()
    return isUrgent() ? Effect.void : gathering.pause(flights.isReady)
  })
  yield* Supervised.forkLoop(
    "dispatcher turns",
    // A stop does not interrupt a statement: the lanes stay owned until it has ended.
    Effect.andThen(Effect.andThen(flights.isReady.await, pause), Effect.uninterruptible(turn)),
    { restartCapMillis: longestWaitMillis }
  )
  // Runs before the turns are interrupted. Acknowledgements whose mark failed before the stop are tried once more: else they are sent again.
  yield* Effect.addFinalizer(() =>
    Effect.andThen(
      flights.stop,
      Effect.catchCause(dispatcher.mark([...unmarked.values()].flat()), (cause) =>
        Effect.logWarning("published events could not be marked, and will be sent again", cause)
      )
    )
  )

  return {
    wakeHeld: (lane) => {
      due.add(lane)
      flights.wake([lane])
    },
    forget: (lane) => {
      unmarked.delete(lane)
      flights.forget(lane)
      due.delete(lane)
      stopped.forget(lane)
    },
    stamp: flights.isReady.open
  }
})
