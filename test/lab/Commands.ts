/** What each command does. A new command needs a line in Case.ts and a case here. */
import { Effect } from "effect"
import type { Actor, Trap } from "./Actor.ts"
import type { Command } from "./Case.ts"
import { applyInbox } from "./InboxCommands.ts"
import { cancel, refund, report } from "./MoneyRequests.ts"
import { decline, methods, operate, orderLetters, otherBody, pay, place, type Request } from "./Requests.ts"
import { maxConsumers } from "./ConsumerWork.ts"
import type { Scheduler } from "./Scheduler.ts"
import { enqueue, labTask, operateTask } from "./TaskRequests.ts"
import { upkeep } from "./UpkeepRequests.ts"

/** Three dispatchers show the same races as four, and their story is shorter. */
const maxDispatchers = 3
const maxWorkers = 3
/** Two clients can wait for each other, and meet more often than three. */
const maxClients = 2
/** Less than a lease, more than a lease, a day's worth of backoff. The last one sets the clock back, as a failover to a standby may. */
const clockSeconds = [1, 10, 60, 3_600, -30] as const

/** While the gateway's keys may be repeated, after that, and once they are forgotten. */
const laterHours = [25, 13, 7] as const

/** The day of the case's start is past its retention; nothing has changed; one more day is over. */
const upkeepHours = [50, 0, 25] as const

export const pick = <A>(all: ReadonlyArray<A>, index: number): A | undefined => all[index % Math.max(1, all.length)]

/** Gives the request to the client with that number, or to another one if that is frozen: a request that nobody takes tests nothing. */
export const ask = (lab: Scheduler, number: number, request: Request) =>
  Effect.gen(function* () {
    const wanted = yield* lab.client(number % maxClients)
    const other = yield* lab.client((number + 1) % maxClients)
    const process = [wanted, other].find(({ actors: [actor] }) => actor?.frozen === false) ?? wanted
    if (process.role === "client") process.line.push(request)
  })

/**
 * Sets a fault for one actor. `a` chooses the actor that takes the next request (0 to 2), batch (3), slice (4), tasks (6, 7) or round of
 * attempts at holds (8), or the newest process (5). A fault that waits for work strikes in the middle of it.
 */
const aim = (lab: Scheduler, a: number, trapOf: (actor: Actor) => Trap) =>
  Effect.sync(() => {
    const actor = lab.processes.at(-1)?.actors[0]
    const role =
      a <= 2
        ? "client"
        : a === 3
          ? "dispatcher"
          : a === 4
            ? "consumer"
            : a === 5
              ? undefined
              : a === 8
                ? "held"
                : "worker"
    if (role !== undefined) lab.ambushes.set(role, trapOf)
    else if (actor !== undefined) actor.trap = trapOf(actor)
  })

/** How many commands are given at once, this one included: `together` adds two or three. */
export const commandsAtOnce = ({ a, name }: Command): number => (name === "together" ? 3 + (a % 2) : 1)

/** Nearly half of the numbers lie in the first eight gates, which are most of a batch or a slice. The rest reach the end of a payment. */
export const gatesFromNow = (b: number): number => 1 + (b < 16 ? b % 8 : b - 8)

/** A payment has three effects, a batch two, a slice two. */
const effectsFromNow = (b: number): number => 1 + (b % 4)

export const says = (lab: Scheduler, what: string) => Effect.sync(() => lab.story.says("—", what))

const pass = (lab: Scheduler, seconds: number, what: string) =>
  Effect.gen(function* () {
    yield* says(lab, what)
    yield* lab.forward(seconds)
    lab.work.pollAll()
  })

/** Carries out a command. A command that has nothing to act on does nothing, and shrinking drops it. */
export const apply = (lab: Scheduler, { a, b, name }: Command): Effect.Effect<void> => {
  const number = lab.requests.length
  const asking = (client: number, request: Request) => {
    lab.requests.push(request)
    return ask(lab, client, request)
  }
  const placed = new Set(lab.requests.filter((request) => request.isPlace).map((request) => request.order)).size
  // Every other request is for order A: an order violation needs several events of one aggregate.
  const order = b % 2 === 0 ? 0 : b % Math.max(1, placed)
  // Before the first order is placed, a request for an order becomes `place`. Once all are placed, `place` becomes `decline`.
  const meant =
    placed === 0 && (name === "pay" || name === "decline" || name === "cancel" || name === "refund")
      ? "place"
      : placed === orderLetters.length && name === "place"
        ? "decline"
        : name
  switch (meant) {
    case "place":
      return asking(a, place(number, placed, lab.known))
    case "together":
      return Effect.void
    case "pay":
      return asking(a, pay(number, order, methods[Math.floor(b / orderLetters.length) % methods.length]!, lab.known))
    case "decline":
      return asking(a, decline(number, order, Math.floor(b / orderLetters.length) % 2 === 0 ? 1 : 2, lab.known))
    case "cancel":
      return asking(a, cancel(order, lab.known))
    case "refund":
      return asking(a, refund(order, lab.known))
    case "webhook":
      return asking(a, report(pick(lab.gateway.facts.toReversed(), b), lab.time))
    case "gatewayFails": {
      const fault = b % 2 === 0 ? "before" : "after"
      lab.gateway.faults.push(fault)
      return says(
        lab,
        fault === "before" ? "the gateway will not hear the next request" : "the gateway's next answer will get lost"
      )
    }
    case "task":
      return asking(a, enqueue(number, b))
    case "cancelTask":
    case "retryTask": {
      const task = pick(
        lab.committed.tasks.filter(({ type }) => type === labTask.name),
        b
      )
      return task === undefined
        ? Effect.void
        : ask(
            lab,
            a,
            operateTask(meant === "cancelTask" ? "cancel" : "retry", { name: lab.story.taskNamed(task), id: task.id })
          )
    }
    case "startWorker":
      return lab.processes.filter((process) => process.role === "worker").length >= maxWorkers
        ? Effect.void
        : Effect.flatMap(lab.start("worker"), (process) => says(lab, `${process.name} starts`))
    case "again": {
      const request = pick(lab.requests, b)
      return request === undefined ? Effect.void : ask(lab, a, request)
    }
    case "startDispatcher":
      return lab.processes.filter((process) => process.role === "dispatcher").length >= maxDispatchers
        ? Effect.void
        : Effect.flatMap(lab.start("dispatcher"), (process) => says(lab, `${process.name} starts`))
    case "startConsumer":
      return lab.work.consumers.living.length >= maxConsumers
        ? Effect.void
        : Effect.flatMap(lab.start("consumer"), (process) => says(lab, `${process.name} starts`))
    case "crash":
    case "freeze":
      return aim(lab, a, ({ gatesPassed }) => ({ kind: meant, at: { gate: gatesPassed + gatesFromNow(b) } }))
    case "crashAfter":
    case "freezeAfter": {
      const kind = meant === "crashAfter" ? "crash" : "freeze"
      return aim(lab, a, ({ effects }) => ({ kind, at: { effects: effects + effectsFromNow(b) } }))
    }
    case "cut":
      return aim(lab, a, ({ effects }) => ({
        kind: "cut",
        effects: effects + effectsFromNow(Math.floor(b / 2)),
        behind: b % 2 === 1
      }))
    case "conflict":
      return aim(lab, a, ({ gatesPassed }) => ({ kind: "conflict", gate: gatesPassed + gatesFromNow(b) }))
    case "handlerFails": {
      const moment = b % 2 === 0 ? "before" : "after"
      lab.work.consumers.troubles.outages.push(moment)
      return says(
        lab,
        `the next effect will fail, ${moment === "before" ? "before it has" : "having"} written anything`
      )
    }
    case "otherBody": {
      const at = b % Math.max(1, number)
      const request = lab.requests[at]
      return request === undefined ? Effect.void : ask(lab, a, otherBody(at, request, lab.known))
    }
    case "cutIn":
      lab.cutIn(gatesFromNow(b))
      return Effect.void
    case "thaw": {
      const actor = pick(
        lab.actors.filter((one) => one.frozen),
        a
      )
      if (actor !== undefined) lab.thaw(actor)
      return Effect.void
    }
    case "lateCommit":
      return aim(lab, 0, () => ({
        kind: "freeze",
        at: b % 2 === 0 ? "late commit" : { afterWrite: Math.floor(b / 2) % 3 }
      }))
    case "outage": {
      const away = a % 2 === 0
      if (lab.log.away === away) return Effect.void
      lab.log.away = away
      if (!away) lab.work.pollAll()
      return says(lab, away ? "the broker is away" : "the broker is back")
    }
    case "loseAck":
      lab.log.publishFaults.push("lose ack")
      return says(lab, "the next ack will be lost")
    case "appendLate":
      lab.log.publishFaults.push("append late")
      return says(lab, "the next send will land late")
    case "reject":
      lab.log.publishFaults.push("reject")
      return says(lab, "the next send will be refused")
    case "refuseAll": {
      const refuses = a % 2 === 0
      if (lab.log.refusesAll === refuses) return Effect.void
      lab.log.refusesAll = refuses
      if (!refuses) lab.work.pollAll()
      return says(lab, refuses ? "the broker refuses every send" : "the broker accepts sends again")
    }
    case "raiseFloors":
      lab.work.floorsDue = true
      return Effect.void
    case "redrive":
    case "discard": {
      const event = pick(
        lab.committed.refused.filter(({ status }) => status !== "discarded"),
        b
      )
      return event === undefined
        ? Effect.void
        : ask(lab, a, operate(meant, { name: lab.story.named(event), id: event.event }))
    }
    case "clock": {
      const seconds = clockSeconds[a % clockSeconds.length]!
      return pass(lab, seconds, seconds > 0 ? `${seconds} s pass` : `the database's clock goes back by ${-seconds} s`)
    }
    case "later": {
      const hours = laterHours[a % laterHours.length]!
      return pass(lab, hours * 3_600, `${hours} hours pass`)
    }
    case "upkeep": {
      const hours = upkeepHours[a % upkeepHours.length]!
      return Effect.andThen(
        hours === 0 ? Effect.void : pass(lab, hours * 3_600, `${hours} hours pass`),
        ask(lab, b, upkeep(lab.environment.parts.upkeep))
      )
    }
    case "subscribe":
    case "rebalance":
    case "replay":
    case "poison":
    case "badRecord":
    case "foreign":
    case "inboxRetry":
    case "inboxDiscard":
    case "inboxSkip":
      return applyInbox(lab, { a, b, name: meant })
  }
}
