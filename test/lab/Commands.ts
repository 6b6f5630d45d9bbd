/** What each command does. To add one: its line in Case.ts, and its case here. */
import { Effect } from "effect"
import type { Actor, Trap } from "./Actor.ts"
import type { Command } from "./Case.ts"
import { decline, methods, orderLetters, pay, place, type Request } from "./Requests.ts"
import type { Scheduler } from "./Scheduler.ts"

/** Few processes tell as much as many, and a story with four dispatchers is read by nobody. */
const maxDispatchers = 3
const maxConsumers = 2
/** Two clients can wait for each other, and meet more often than three. */
const maxClients = 2
/** Below a lease, above it, and a day's worth of backoff. */
const clockSeconds = [1, 10, 60, 3_600] as const

const pick = <A>(all: ReadonlyArray<A>, index: number): A | undefined => all[index % Math.max(1, all.length)]

const ask = (lab: Scheduler, client: number, request: Request) =>
  Effect.map(lab.client(client % maxClients), (process) => {
    if (process.role === "client") process.line.push(request)
  })

const setTrap = (actor: Actor | undefined, trap: Trap) => {
  if (actor !== undefined) actor.trap = trap
  return Effect.void
}

/** How many commands are given at once, the next one included: `together` takes two or three more with it. */
export const commandsAtOnce = ({ a, name }: Command): number => (name === "together" ? 3 + (a % 2) : 1)

/** Services first: a crash of theirs is what most stories are about. */
const targets = (lab: Scheduler): ReadonlyArray<Actor> =>
  (["dispatcher", "consumer", "client"] as const).flatMap((role) =>
    lab.processes.filter((process) => process.role === role).flatMap((process) => process.actors)
  )

/** Nearly half fall into the first eight gates, which are most of a batch's or a slice's; the rest reach the end of a payment. */
const gatesFromNow = (b: number): number => 1 + (b < 16 ? b % 8 : b - 8)

const says = (lab: Scheduler, what: string) => Effect.sync(() => lab.story.says("—", what))

/** Carries out a command. One that finds nothing to act on does nothing, and is dropped when its case shrinks. */
export const apply = (lab: Scheduler, { a, b, name }: Command): Effect.Effect<void> => {
  const number = lab.requests.length
  const asking = (client: number, request: Request) => {
    lab.requests.push(request)
    return ask(lab, client, request)
  }
  const placed = new Set(lab.requests.filter((request) => request.isPlace).map((request) => request.order)).size
  const order = b % Math.max(1, placed)
  // Where nothing is placed yet, there is only one thing to ask for.
  const meant = placed === 0 && (name === "pay" || name === "decline") ? "place" : name
  switch (meant) {
    case "place":
      return placed === orderLetters.length ? Effect.void : asking(a, place(number, placed, lab.known))
    case "together":
      return Effect.void
    case "pay":
      return asking(a, pay(number, order, methods[Math.floor(b / orderLetters.length) % methods.length]!, lab.known))
    case "decline":
      return asking(a, decline(number, order, lab.known))
    case "again": {
      const request = pick(lab.requests, b)
      return request === undefined ? Effect.void : ask(lab, a, request)
    }
    case "startDispatcher":
      return lab.processes.filter((process) => process.role === "dispatcher").length >= maxDispatchers
        ? Effect.void
        : Effect.flatMap(lab.start("dispatcher"), (process) => says(lab, `${process.name} starts`))
    case "startConsumer":
      return lab.processes.filter((process) => process.role === "consumer").length >= maxConsumers
        ? Effect.void
        : Effect.flatMap(lab.start("consumer"), (process) => says(lab, `${process.name} starts`))
    case "crash":
    case "freeze": {
      const actor = pick(targets(lab), a)
      return setTrap(actor, { kind: meant, at: { gate: (actor?.gatesPassed ?? 0) + gatesFromNow(b) } })
    }
    case "thaw": {
      const actor = pick(
        lab.actors.filter((one) => one.frozen),
        a
      )
      if (actor !== undefined) lab.thaw(actor)
      return Effect.void
    }
    case "lateCommit":
      return Effect.flatMap(lab.client(a % maxClients), ({ actors: [actor] }) =>
        setTrap(actor, { kind: "freeze", at: b % 2 === 0 ? "late commit" : "late lock" })
      )
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
    case "clock": {
      const seconds = clockSeconds[a % clockSeconds.length]!
      return Effect.andThen(
        lab.forward(seconds),
        Effect.suspend(() => {
          lab.work.pollAll()
          return says(lab, `${seconds} s pass`)
        })
      )
    }
  }
}
