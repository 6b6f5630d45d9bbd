/**
 * Runs one case: one actor at a time, from gate to gate, on a real Postgres.
 *
 * A step resumes one actor and waits until it is at its next gate, has ended its job, or waits for another actor's lock. No actor runs
 * while the next choice is made, so the same case takes the same path each time.
 */
import { Effect } from "effect"
import { ordersTopic } from "../../src/domain/Events.ts"
import { type Actor, type LabTime, randomOf, type Trap } from "./Actor.ts"
import type { Case } from "./Case.ts"
import { apply, commandsAtOnce } from "./Commands.ts"
import { type Committed, epoch, LabDatabase, nothingCommitted } from "./LabDatabase.ts"
import { ModelLog } from "./ModelBroker.ts"
import { ModelGatewayState } from "./ModelGateway.ts"
import { Broken, keyOf, rest, safety, type Violation, type World } from "./Oracle.ts"
import { inboxSettled } from "./OracleInbox.ts"
import { type Parts, partitionCount, settingsOf } from "./Parts.ts"
import {
  type Environment,
  type Process,
  startClient,
  startConsumer,
  startDispatcher,
  startWorker
} from "./Processes.ts"
import { repairs } from "./InboxCommands.ts"
import { report } from "./MoneyRequests.ts"
import { type KnownOrders, operate, type Request } from "./Requests.ts"
import { labTask, maxRuns, operateTask } from "./TaskRequests.ts"
import { Story } from "./Story.ts"
import { Topic } from "./Topic.ts"
import { Work } from "./Work.ts"

/** The result of a case. */
export interface Outcome {
  readonly violation: Violation | undefined
  readonly steps: number
  readonly story: Story
}

/** Far above what a case of ten commands takes, about 300 steps. A case that reaches it does not end. */
const maxSteps = 2_000
/** Rounds of polling after the faults have stopped. Three are enough; a lease that has to expire takes one more. */
const maxRounds = 6
/** Longer than any pause, lease or backoff, so that after one round every attempt is due. */
const roundSeconds = 60
/** The number of a client that gets no request until all others may be frozen. */
const spareClient = 2
/** How often the dispatchers poll for unsent events between two commands. Bounded, since an outage may last. */
const maxPolls = 2
/** Longer than any pause of a topic here. */
const pollMillis = 50
/** Longer than any wait of a consumer's event between two attempts here. */
const retrySeconds = 5
/** A statement that takes longer than this may wait for a lock. The locks are looked at then, and again after each such time. */
const blockedLookMillis = 3
/** The time outside of the database starts with the time inside. */
const startMillis = Date.parse(epoch)
/**
 * Only a hang takes this many looks in one step, about ten seconds. It is low because shrinking a hang waits for many of them. It counts
 * looks and not seconds, because a machine that stands still for a while makes no looks either.
 */
const maxLooks = 2_500

export class Scheduler {
  readonly story = new Story()
  readonly log = new ModelLog()
  readonly time: LabTime = { millis: startMillis }
  readonly gateway = new ModelGatewayState(() => this.time.millis)
  readonly known: KnownOrders = new Map()
  readonly requests: Array<Request> = []
  readonly processes: Array<Process> = []
  readonly database: LabDatabase["Service"]
  readonly topic: Topic = new Topic(this.log, this.story)
  readonly work: Work = new Work(this)
  /** The fault for the actor that takes the next request, batch or slice. */
  readonly ambushes = new Map<Process["role"] | "held", (actor: Actor) => Trap>()
  steps = 0
  committed: Committed = nothingCommitted
  readonly environment: Environment
  private readonly input: Case
  private readonly switches: ReadonlyMap<number, number>
  private readonly seen = new Set<string>()
  private readonly firstIds = new Map<string, string>()
  private readonly everArchived = new Map<string, Committed["archive"][number]>()
  private readonly everMarked = new Map<string, Committed["inbox"]["marks"][number]>()
  /** Tasks with the ordering key, in the order of their enqueuing. */
  private line: Array<string> = []
  private readonly outOfLine = new Set<string>()
  private unseen = false
  private nextCommand = 0
  /** The step from which on the next command is given, even if an actor is at work. */
  private cutInAt: number | undefined
  private reported: Violation | undefined
  /** Steps so far at which several actors could run; a switch's number counts these. */
  private choices = 0
  private polls = 0
  private last: Actor | undefined
  private counts = { client: 0, dispatcher: 0, consumer: 0, worker: 0 }

  constructor(database: LabDatabase["Service"], input: Case, parts: Parts) {
    this.database = database
    this.input = input
    this.switches = new Map(input.switches.map(({ at, to }) => [at, to]))
    this.environment = {
      database,
      log: this.log,
      gateway: this.gateway,
      parts,
      settings: settingsOf(input.seed),
      time: this.time,
      random: randomOf(input.seed),
      titleOf: (batch) => this.topic.titleOf(batch),
      workDone: new Set()
    }
  }

  // --- processes -------------------------------------------------------------------------------------------------------------

  /** Starts a process of the role. */
  start(role: Process["role"], number = 0, line: Array<Request> = []): Effect.Effect<Process> {
    const count = ++this.counts[role]
    const name = role === "client" ? `client ${number + 1}${"′".repeat(this.crashesOf(number))}` : `${role} ${count}`
    const starting: Effect.Effect<Process> =
      role === "client"
        ? startClient(this.environment, number, name, line)
        : role === "dispatcher"
          ? startDispatcher(this.environment, name)
          : role === "consumer"
            ? startConsumer(this.environment, name)
            : startWorker(this.environment, name)
    return Effect.tap(starting, (process) =>
      Effect.sync(() => {
        this.processes.push(process)
        for (const actor of process.actors) actor.tell = (what) => this.story.says(actor.name, what)
      })
    )
  }

  private readonly clientCrashes = new Map<number, number>()
  private readonly crashesOf = (number: number): number => this.clientCrashes.get(number) ?? 0

  /** The client with that number, started when it is first needed. */
  client(number: number) {
    return Effect.suspend(() => {
      const there = this.processes.find((process) => process.role === "client" && process.number === number)
      return there === undefined ? this.start("client", number) : Effect.succeed(there)
    })
  }

  processOf(actor: Actor): Process {
    return this.processes.find((process) => process.actors.includes(actor))!
  }

  get actors(): ReadonlyArray<Actor> {
    return this.processes.flatMap((process) => process.actors)
  }

  /** The process dies: its fibers never run again, Postgres rolls back, and another process takes its place. */
  crash(process: Process): Effect.Effect<void> {
    return Effect.gen({ self: this }, function* () {
      const at = process.actors.find((actor) => actor.state === "gate")
      this.story.says(process.name, at === undefined ? "crashes" : `crashes before "${at.label}"`)
      this.processes.splice(this.processes.indexOf(process), 1)
      for (const actor of process.actors) {
        actor.state = "dead"
        // It may have committed just before, and its fiber reports nothing any more.
        this.unseen ||= actor.changed
        yield* this.database.terminate(actor.connections)
      }
      if (process.role === "client") {
        this.clientCrashes.set(process.number, this.crashesOf(process.number) + 1)
        yield* this.start("client", process.number, process.line)
      } else if (process.role !== "consumer" || !process.leaves) {
        const next = yield* this.start(process.role)
        this.story.says(next.name, "starts in its place")
      }
      this.work.pollAll()
      yield* this.settle()
    })
  }

  // --- steps -----------------------------------------------------------------------------------------------------------------

  /** The possible moves: the actor that ran last, then the others in turn, a late append, and the next command. */
  private candidates(withCommands: boolean): ReadonlyArray<Effect.Effect<void>> {
    const all = this.actors
    const from = this.last === undefined ? 0 : Math.max(0, all.indexOf(this.last))
    const inTurn = [...all.slice(from), ...all.slice(0, from)]
    const moves: Array<Effect.Effect<void>> = []
    for (const actor of inTurn) {
      if (actor.isRunnable)
        moves.push(
          this.letOn(actor, () => {
            this.story.step(actor.name, actor.label)
            actor.goOn()
          })
        )
      else if (actor.state === "idle" && !actor.frozen) {
        const job = this.work.jobOf(this.processOf(actor), actor)
        if (job !== undefined) moves.push(this.letOn(actor, job))
      }
    }
    if (moves.length === 0 && withCommands && this.polls < maxPolls && this.waitsForTime) {
      moves.push(
        Effect.gen({ self: this }, function* () {
          this.polls += 1
          this.time.millis += pollMillis
          if (this.work.consumers.hasRetries) yield* this.forward(retrySeconds)
          this.work.pollAll()
        })
      )
    }
    const late = this.log.late[0]
    if (late !== undefined) {
      moves.push(
        Effect.sync(() => {
          this.log.late.shift()
          late.land()
          this.story.says("the network", `delivers the late ${late.title}`)
        })
      )
    }
    const command = withCommands ? this.input.commands[this.nextCommand] : undefined
    if (command !== undefined) {
      const give = Effect.suspend(() => {
        const count = commandsAtOnce(command)
        const commands = this.input.commands.slice(this.nextCommand, this.nextCommand + count)
        this.nextCommand += count
        this.polls = 0
        this.cutInAt = undefined
        return Effect.forEach(commands, (one) => apply(this, one), { discard: true })
      })
      if (this.cutInAt !== undefined && this.steps >= this.cutInAt) return [give]
      moves.push(give)
    }
    return moves
  }

  /** Whether something will be attempted again by itself. */
  private get waitsForTime(): boolean {
    return this.committed.queue.length > 0 || this.work.consumers.hasRetries
  }

  /** The next step is this actor's, unless a switch chooses another one. */
  turnTo(actor: Actor): void {
    this.last = actor
  }

  /** Gives the next command after that many more steps, even if an actor is at work then. */
  cutIn(steps: number): void {
    this.cutInAt = this.steps + steps
  }

  private letOn(actor: Actor, move: () => void): Effect.Effect<void> {
    return Effect.gen({ self: this }, function* () {
      this.last = actor
      this.time.millis += 1
      move()
      yield* this.settle(actor)
    })
  }

  /** Waits until no actor runs: each is at a gate, idle, or waits for a lock. Then traps strike. */
  private settle(stepped?: Actor): Effect.Effect<void> {
    return Effect.gen({ self: this }, function* () {
      let looks = 0
      // The actor that was resumed first. It may release a lock that another actor waits for, which then reaches its next gate in this
      // step.
      const others = this.actors.filter((actor) => actor !== stepped)
      for (const actor of stepped === undefined ? others : [stepped, ...others]) {
        if (actor.state !== "running" && actor.state !== "blocked") continue
        while (!(yield* actor.arrival(actor === stepped || actor.state === "running" ? blockedLookMillis : 0))) {
          if (yield* this.waitsForAnother(actor)) {
            if (actor.state !== "blocked") this.story.says(actor.name, `waits for a lock (${actor.label})`)
            actor.state = "blocked"
            break
          }
          if (++looks > maxLooks)
            throw new Broken({
              invariant: "everything comes to rest",
              detail: `${actor.name} hangs at "${actor.label}"`
            })
        }
      }
      for (const actor of this.actors) yield* this.spring(actor)
    })
  }

  /** Whether its statement waits for a lock of an actor that stands still. A deadlock is none: Postgres ends one of its transactions. */
  private waitsForAnother(actor: Actor): Effect.Effect<boolean> {
    return Effect.gen({ self: this }, function* () {
      const pid = actor.statementPid
      // An actor with a short lock timeout is waited for: it returns with the lock or without it before another actor runs.
      if (pid === undefined || actor.givesUp) return false
      const reached = new Set<number>([pid])
      const open = [...(yield* this.database.blockers(pid))]
      if (open.length === 0) return false
      for (const blocker of open) {
        if (blocker === pid) return false
        if (reached.has(blocker)) continue
        reached.add(blocker)
        const further: ReadonlyArray<number> = yield* this.database.blockers(blocker)
        if (further.includes(pid)) return false
        open.push(...further)
      }
      return (actor.state as string) !== "gate" && (actor.state as string) !== "idle"
    })
  }

  /** Strikes, if the actor has reached its trap's place. */
  private spring(actor: Actor): Effect.Effect<void> {
    const trap = actor.trap
    if (trap === undefined || actor.state !== "gate") return Effect.void
    // Actor.ts handles these two, at a statement.
    if (trap.kind === "cut" || trap.kind === "conflict") return Effect.void
    const connections = [...actor.connections]
    const ends = actor.label === "COMMIT" || actor.label === "ROLLBACK"
    const { at } = trap
    const here =
      at === "late commit"
        ? actor.label === "COMMIT" && connections.some((connection) => connection.appended)
        : "gate" in at
          ? actor.gatesPassed >= at.gate
          : "effects" in at
            ? actor.effects >= at.effects
            : !ends && connections.some(({ sinceWrite, wrote }) => wrote && sinceWrite >= at.afterWrite)
    if (!here) return Effect.void
    actor.trap = undefined
    if (trap.kind === "crash") return this.crash(this.processOf(actor))
    if (trap.kind === "happens") return trap.happens(actor)
    actor.frozen = true
    const process = this.processOf(actor)
    // Worker and consumer freeze with both of their actors. Of a dispatcher's two workers, which a mistake adds, one can freeze alone.
    if (process.role === "worker" || process.role === "consumer") for (const one of process.actors) one.frozen = true
    this.story.says(actor.name, `freezes before "${actor.label}"`)
    this.work.pollAll()
    return Effect.void
  }

  private step(withCommands: boolean): Effect.Effect<boolean> {
    return Effect.gen({ self: this }, function* () {
      const moves = this.candidates(withCommands)
      if (moves.length === 0) return false
      if (this.steps >= maxSteps)
        throw new Broken({ invariant: "everything comes to rest", detail: `it still ran after ${maxSteps} steps` })
      const isChoice = moves.length > (withCommands && this.nextCommand < this.input.commands.length ? 2 : 1)
      yield* moves[(isChoice ? (this.switches.get(this.choices++) ?? 0) : 0) % moves.length]!
      this.steps += 1
      yield* this.look()
      return true
    })
  }

  private runToRest(withCommands: boolean): Effect.Effect<void> {
    return Effect.repeat(this.step(withCommands), { while: (moved) => moved }).pipe(Effect.asVoid)
  }

  // --- what is seen ----------------------------------------------------------------------------------------------------------

  private look(): Effect.Effect<void> {
    return Effect.gen({ self: this }, function* () {
      const changed = this.actors.filter((actor) => actor.changed)
      for (const actor of changed) actor.changed = false
      const isStale = changed.length > 0 || this.unseen
      this.unseen = false
      const appended = this.topic.read()
      if (isStale) yield* this.observe
      if (this.reported !== undefined) throw new Broken(this.reported)
      const moved = this.log.takeMoved()
      if (isStale || appended || moved) this.check(safety)
    })
  }

  /** Reads the committed rows, and wakes the actors for which there is something new. */
  private readonly observe: Effect.Effect<void> = Effect.gen({ self: this }, function* () {
    const isDropping = this.actors.some(({ connections }) => [...connections].some(({ dropped }) => dropped))
    this.committed = yield* this.database.observe(isDropping ? this.committed : undefined)
    for (const order of this.committed.orders) this.story.letters.set(order.id, order.customer)
    const line = this.committed.tasks.filter((task) => task.line !== null)
    line.forEach(({ id, state }, index) => {
      const isNew = !this.line.includes(id)
      const isLate = isNew && line.slice(index + 1).some((behind) => this.line.includes(behind.id))
      if (isLate || state === "dead" || state === "cancelled") this.outOfLine.add(id)
    })
    this.line = line.map(({ id }) => id)
    this.work.tasks.look()
    this.work.consumers.look()
    if (this.work.tasks.needsWorker) {
      const worker = yield* this.start("worker")
      this.story.says(worker.name, "starts")
    }
    for (const row of this.committed.archive) this.everArchived.set(row.event, row)
    for (const mark of this.committed.inbox.marks) this.everMarked.set(`${mark.consumer} ${mark.event}`, mark)
    for (const row of this.committed.queue) {
      if (this.seen.has(row.event)) continue
      this.seen.add(row.event)
      if (!this.firstIds.has(keyOf(row))) this.firstIds.set(keyOf(row), row.event)
      this.work.wake(row.lane)
    }
  })

  /** Reads the committed rows again after a change that no actor made. */
  readonly observeNow: Effect.Effect<void> = Effect.suspend(() => this.observe)

  /** Marks that are gone now are not reported as dropped. */
  forgetMarks(): void {
    this.everMarked.clear()
  }

  /** The actor begins work of its role, and takes over the fault that was set for it. */
  ambush(role: Process["role"] | "held", actor: Actor): void {
    const trapOf = this.ambushes.get(role)
    if (trapOf !== undefined) actor.trap = trapOf(actor)
    this.ambushes.delete(role)
  }

  /** Ends the case with this violation. */
  report(violation: Violation): void {
    this.reported ??= violation
  }

  private check(invariants: typeof safety): void {
    const world = this.world
    this.story.see(world)
    const violation = invariants(world, this.story.named)
    if (violation !== undefined) throw new Broken(violation)
  }

  get world(): World {
    return {
      committed: this.committed,
      topic: this.topic.records,
      records: this.topic.all,
      groups: this.work.consumers.groups.map((name) => ({
        name,
        places: Array.from({ length: partitionCount }, (_, partition) =>
          this.log.committed(name, ordersTopic, partition)
        )
      })),
      failed: this.work.consumers.troubles.failed,
      nameOf: (event) => this.topic.nameOf(event),
      captures: this.gateway.captures,
      givenBack: this.gateway.refunds,
      pastMillis: this.time.millis - startMillis,
      workDone: this.environment.workDone,
      inLine: this.line.filter((id) => !this.outOfLine.has(id)),
      firstIds: this.firstIds,
      isArchived: this.environment.settings.archive,
      everArchived: this.everArchived,
      everMarked: this.everMarked,
      inTransaction: this.actors.some((actor) => actor.inTransaction),
      unanswered: this.unanswered.map((request) => request.title),
      wanted: new Set(this.requests.filter((request) => request.isPlace).map((request) => request.order)).size,
      answers: this.requests.flatMap(({ answer, title }) => (answer === undefined ? [] : [{ title, ...answer }])),
      refusals: this.requests.flatMap(({ refusal, title }) => (refusal === undefined ? [] : [{ title, ...refusal }]))
    }
  }

  /**
   * Requests without a final answer. A request is not counted if its order was never placed, since it could not be sent. It is not counted
   * if its payment is `manual`, since a person has to decide first.
   */
  private get unanswered(): ReadonlyArray<Request> {
    const placed = new Set(this.requests.filter((request) => request.isPlace).map((request) => request.order))
    const manual = new Set(this.committed.payments.filter(({ status }) => status === "manual").map(({ id }) => id))
    return this.requests.filter(
      ({ answered, order, waitsFor }) =>
        !answered && (order < 0 || placed.has(order)) && !(waitsFor !== undefined && manual.has(waitsFor))
    )
  }

  // --- the whole -------------------------------------------------------------------------------------------------------------

  /** Runs the commands, ends all faults, and then runs rounds until everything is at rest. */
  readonly play: Effect.Effect<void> = Effect.gen({ self: this }, function* () {
    this.log.ensureTopic(ordersTopic, partitionCount)
    const { archive, batchBytes } = this.environment.settings
    if (!archive) this.story.says("—", "nothing is archived")
    if (batchBytes < 2_000) this.story.says("—", "a batch has room for one event")
    yield* this.start("dispatcher")
    yield* this.start("consumer")
    yield* this.runToRest(true)

    this.log.away = false
    this.log.refusesAll = false
    this.log.publishFaults.length = 0
    this.gateway.faults.length = 0
    this.work.consumers.troubles.outages.length = 0
    for (const actor of this.actors) actor.trap = undefined
    this.ambushes.clear()
    this.story.says("—", "the faults stop")
    // A frozen process is replaced before it thaws, so that it thaws as a zombie.
    for (const role of ["dispatcher", "consumer"] as const) {
      const living = this.processes.filter(
        (process) =>
          process.role === role &&
          !process.actors.some((actor) => actor.frozen) &&
          !(process.role === "consumer" && process.leaves)
      )
      if (living.length === 0) yield* this.start(role)
    }
    this.work.pollAll()
    yield* this.runToRest(false)
    yield* this.askOthers
    for (const actor of this.actors) {
      if (!actor.frozen) continue
      this.thaw(actor)
      yield* this.runToRest(false)
    }
    yield* this.letHoldsEnd
    // Each failed run of a task with the ordering key may take a round, since all tasks behind it wait. So may each dead letter of an
    // aggregate.
    const rounds =
      maxRounds + maxRuns * this.line.length + this.committed.inbox.letters.length + this.committed.inbox.waiting.length
    for (let round = 1; round <= rounds; round++) {
      yield* this.forward(roundSeconds)
      this.work.pollAll()
      for (const event of this.committed.refused.filter(({ status }) => status === "dead")) {
        yield* this.askFirst(operate("redrive", { name: this.story.named(event), id: event.event }))
      }
      for (const request of repairs(this.world)) yield* this.askFirst(request)
      for (const task of this.committed.tasks.filter(({ state, type }) => state === "dead" && type !== labTask.name))
        yield* this.askFirst(operateTask("retry", { name: this.story.taskNamed(task), id: task.id }))
      // The gateway repeats a report until it is taken. The lab does so only for payments that nothing else can settle.
      for (const { id } of this.committed.payments.filter(({ status }) => status === "manual")) {
        for (const fact of this.gateway.facts.filter(({ payment }) => payment === id))
          yield* this.askFirst(report(fact, this.time))
      }
      for (const request of this.unanswered) yield* this.askFirst(request)
      yield* this.runToRest(false)
      if (rest(this.world, this.story.named) === undefined) break
    }
    this.check(safety)
    this.check(rest)
  })

  /** Runs rounds with handlers that still fail. Their events must keep no other aggregate waiting. */
  private readonly letHoldsEnd: Effect.Effect<void> = Effect.gen({ self: this }, function* () {
    let before = ""
    for (let round = 1; round <= maxRounds && inboxSettled(this.world) !== undefined; round++) {
      yield* this.forward(roundSeconds)
      this.work.pollAll()
      yield* this.runToRest(false)
      // A round that changed nothing will change nothing when repeated.
      const now = JSON.stringify(this.committed.inbox)
      if (now === before) break
      before = now
    }
    this.check(safety)
    this.check(inboxSettled)
    const { troubles } = this.work.consumers
    if (troubles.poisons.size === 0) return
    troubles.poisons.clear()
    this.story.says("—", "the handlers are mended")
  })

  private readonly askFirst = (request: Request) =>
    Effect.map(this.client(0), (client) => {
      if (client.role === "client" && !client.line.includes(request)) client.line.push(request)
    })

  /** Repeats the requests of frozen clients at another client, once no lease can prevent it. So a client thaws as a zombie, too. */
  private readonly askOthers: Effect.Effect<void> = Effect.gen({ self: this }, function* () {
    const frozen = this.processes.filter((process) => process.role === "client" && process.actors[0]?.frozen === true)
    if (frozen.length === 0) return
    yield* this.forward(roundSeconds)
    const other = yield* this.client(spareClient)
    if (other.role === "client") other.line.push(...this.unanswered)
    yield* this.runToRest(false)
  })

  thaw(actor: Actor): void {
    const process = this.processOf(actor)
    const isWhole = process.role === "worker" || process.role === "consumer"
    for (const one of isWhole ? process.actors : [actor]) one.frozen = false
    this.story.says(actor.name, actor.state === "idle" ? "thaws" : `thaws, and goes on with "${actor.label}"`)
  }

  forward(seconds: number): Effect.Effect<void> {
    this.time.millis += seconds * 1_000
    return Effect.andThen(this.database.forward(seconds), this.observe)
  }

  /** Rolls back and returns the sessions of the case: a crashed or broken case leaves transactions open. */
  readonly clean: Effect.Effect<void> = Effect.suspend(() => {
    const left = this.actors.flatMap((actor) => [...actor.connections])
    for (const actor of this.actors) actor.state = "dead"
    return this.database.recover(left)
  })
}

/** Runs a case over the parts, in the lab's database. */
export const run = (input: Case, parts: Parts): Effect.Effect<Outcome, never, LabDatabase> =>
  Effect.gen(function* () {
    const database = yield* LabDatabase
    yield* database.reset
    if (input.commands.some(({ name }) => name === "upkeep")) yield* database.renewDays
    const scheduler = new Scheduler(database, input, parts)
    const violation = yield* scheduler.play.pipe(
      Effect.as(undefined),
      Effect.catchDefect((defect) =>
        Effect.succeed(
          defect instanceof Broken
            ? defect.violation
            : // A fault of the lab, or of the code in a place where the lab itself calls it: it has a case, too, and shrinks.
              ({ invariant: "the lab can play it", detail: String(defect) } satisfies Violation)
        )
      )
    )
    yield* scheduler.clean
    return { violation, steps: scheduler.steps, story: scheduler.story }
  })
