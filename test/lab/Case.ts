/**
 * A case: requests and faults (commands), which actor runs where several can (switches), and a seed for ids and jitter. Effect's Arbitrary
 * generates and shrinks it. Its written form is a token.
 */
import { Arbitrary, Result, Schema } from "effect"

/** The commands. `letter` is the command in a token, `share` how often it is drawn. `says` explains `a` and `b`. */
export const commandKinds = [
  { letter: "p", name: "place", share: 6 }, // a: client
  { letter: "y", name: "pay", share: 8 }, // a: client, b: order and payment method
  { letter: "r", name: "decline", share: 5 }, // a: client, b: order. A short transaction of another kind on an existing order
  { letter: "a", name: "again", share: 4 }, // a: client, b: request. The same request with the same key, at once
  { letter: "d", name: "startDispatcher", share: 4 },
  { letter: "n", name: "startConsumer", share: 2 },
  { letter: "c", name: "crash", share: 2 }, // a: whom (see aim), b: gates from now
  { letter: "f", name: "freeze", share: 2 }, // a: whom (see aim), b: gates from now
  { letter: "t", name: "thaw", share: 1 }, // a: which of the frozen
  { letter: "l", name: "lateCommit", share: 5 }, // the next request idles in its transaction, b: before COMMIT (even) or behind its first write (odd)
  { letter: "o", name: "outage", share: 3 }, // a: on (even) or off
  { letter: "k", name: "loseAck", share: 2 },
  { letter: "z", name: "appendLate", share: 2 },
  { letter: "x", name: "reject", share: 3 },
  { letter: "w", name: "clock", share: 2 }, // a: how far
  { letter: "g", name: "together", share: 4 }, // a: how many of the next commands are given at once
  { letter: "e", name: "crashAfter", share: 6 }, // a: whom, b: so many of its effects from now
  { letter: "v", name: "freezeAfter", share: 5 }, // a: whom, b: so many of its effects from now
  { letter: "b", name: "cut", share: 4 }, // a: whose session ends, b: before (even) or after which of its commits
  { letter: "q", name: "conflict", share: 2 }, // a: whose, b: gates from now; its transaction fails there and is to be run again
  { letter: "h", name: "handlerFails", share: 3 }, // b: before it writes (even) or behind that
  { letter: "j", name: "otherBody", share: 2 }, // a: client, b: request. Another request under its key
  { letter: "u", name: "cutIn", share: 2 }, // b: steps from now, at which the next command is given although somebody is at work
  { letter: "s", name: "refuseAll", share: 2 }, // a: on (even) or off
  { letter: "m", name: "redrive", share: 2 }, // a: client who is the operator, b: which of the refused events
  { letter: "i", name: "discard", share: 1 }, // the same
  { letter: "F", name: "raiseFloors", share: 2 },
  { letter: "K", name: "task", share: 5 }, // a: client, b: its line (odd: it has one), and how it goes (see TaskRequests.ts)
  { letter: "W", name: "startWorker", share: 2 },
  { letter: "C", name: "cancelTask", share: 1 }, // a: client who is the operator, b: which of the tasks
  { letter: "R", name: "retryTask", share: 1 }, // the same
  { letter: "G", name: "cancel", share: 4 }, // a: client, b: order
  { letter: "B", name: "refund", share: 4 }, // a: client, b: order
  { letter: "H", name: "webhook", share: 3 }, // a: client, b: which of the things that happened at the gateway, the last first
  { letter: "U", name: "gatewayFails", share: 3 }, // b: its next answer gets lost, before it does anything (even) or behind that
  { letter: "D", name: "later", share: 2 }, // a: how many hours later
  { letter: "S", name: "subscribe", share: 3 }, // consumers have a second subscriber from here on
  { letter: "J", name: "rebalance", share: 3 }, // a: who has the next slice loses it (even) or leaves; the new owner goes on first, or (2, 3) the zombie; b: gates from the slice's start
  { letter: "L", name: "replay", share: 3 }, // a: to the start, there without marks, or one back; b: now (even) or in the next slice, b/2 gates into it
  { letter: "P", name: "poison", share: 5 }, // a: for whom, and (2, 3) once and not twice; b: which event, how, and when in its handler (InboxCommands.ts)
  { letter: "X", name: "badRecord", share: 3 }, // a: key (order A's, order B's, none); b: what is in it
  { letter: "Z", name: "foreign", share: 4 }, // a: partition (and 4 to 7: of a newer schema); b: version
  { letter: "M", name: "inboxRetry", share: 3 }, // a: client who is the operator, b: which of what consumers hold
  { letter: "I", name: "inboxDiscard", share: 3 }, // the same
  { letter: "O", name: "inboxSkip", share: 2 }, // the same
  { letter: "N", name: "upkeep", share: 3 } // a: how many hours pass before, b: client who does it
] as const

export type CommandName = (typeof commandKinds)[number]["name"]

/** A command with its two small numbers. Each number is taken modulo the count of choices, so every number is valid. */
export interface Command {
  readonly name: CommandName
  readonly a: number
  readonly b: number
}

/**
 * At the `at`-th step where several actors can run, the scheduler takes the `to`-th of them, or the next command. Without a switch it takes
 * the 0th: the actor that ran last.
 */
export interface Switch {
  readonly at: number
  readonly to: number
}

export interface Case {
  readonly seed: number
  readonly commands: ReadonlyArray<Command>
  readonly switches: ReadonlyArray<Switch>
}

/** Short cases: nobody reads a longer story, and each command costs milliseconds. */
export const maxCommands = 10
/** The highest choice at which a switch may stand: most cases have a few dozen choices. */
const maxSwitchStep = 50
/** Enough that some hit a narrow window; shrinking drops the switches that don't matter. */
const maxSwitches = 14
/** More than the gates of the longest job: a whole payment has about two dozen, and faults near its end matter most. */
const maxGates = 36

const int = (maximum: number) => Schema.Int.check(Schema.isBetween({ minimum: 0, maximum }))

const oneSwitch = Arbitrary.schema(Schema.Struct({ at: int(maxSwitchStep), to: int(4) }))

/** The most kinds of commands in a case, beside `place`. With few kinds a case has enough of each for bugs that need three of one kind. */
const maxKinds = 6

/**
 * Generates cases. Shrinking drops commands and switches, and reduces their numbers towards 0.
 *
 * `random` chooses once which kinds of commands all generated cases have: `place`, and some others, drawn by their shares. With all kinds
 * in each case, hardly any case would have four commands of two kinds.
 *
 * Source: "Swarm Testing", Groce and others, 2012.
 */
export const arbitraryOf = (random: () => number): Arbitrary.Arbitrary<Case> => {
  const kinds = new Set<CommandName>(["place"])
  const tickets = commandKinds.flatMap(({ name, share }) => Array.from({ length: share }, () => name))
  const wanted = 2 + Math.floor(random() * maxKinds)
  while (kinds.size < wanted) kinds.add(tickets[Math.floor(random() * tickets.length)]!)
  const slots = tickets.filter((name) => kinds.has(name))
  const command = Arbitrary.map(
    Arbitrary.schema(Schema.Tuple([int(slots.length - 1), int(8), int(maxGates - 1)])),
    ([slot, a, b]): Command => ({ name: slots[slot]!, a, b })
  )
  return Arbitrary.all({
    seed: Arbitrary.schema(int(9_999)),
    commands: Arbitrary.array(command, { minLength: 1, maxLength: maxCommands }),
    switches: Arbitrary.array(oneSwitch, { maxLength: maxSwitches })
  })
}

/** The case as a token: `L1.<mistake or none>.<seed>.<commands>.<switches>`, for example `L1.none.7.p-y1:0-c0:5.12:1`. */
export const encode = (mistake: string | undefined, { commands, seed, switches }: Case): string => {
  const letter = (name: CommandName) => commandKinds.find((kind) => kind.name === name)!.letter
  const written = commands.map(({ a, b, name }) => `${letter(name)}${a}:${b}`).join("-")
  return ["L1", mistake ?? "none", seed, written, switches.map(({ at, to }) => `${at}:${to}`).join("-")].join(".")
}

const tokenPattern =
  /^L1\.([a-z-]+)\.(\d{1,10})\.((?:[a-zA-Z]\d{1,3}:\d{1,3}(?:-[a-zA-Z]\d{1,3}:\d{1,3})*)?)\.((?:\d{1,4}:\d{1,3}(?:-\d{1,4}:\d{1,3})*)?)$/

/** Reads a token, or returns what is wrong with it. */
export const decode = (
  token: string
): Result.Result<{ readonly mistake: string | undefined; readonly input: Case }, string> => {
  const match = tokenPattern.exec(token.trim())
  if (match === null) return Result.fail(`"${token}" is no token of the lab: L1.<mistake>.<seed>.<commands>.<switches>`)
  const [, mistake, seed, commands, switches] = match
  const parts = (text: string) => text.split("-").filter((part) => part !== "")
  const pair = (text: string) => text.split(":").map(Number) as [number, number]
  const read: Array<Command> = []
  for (const part of parts(commands!)) {
    const kind = commandKinds.find((one) => one.letter === part[0])
    if (kind === undefined) return Result.fail(`"${part[0]}" is no command of the lab`)
    const [a, b] = pair(part.slice(1))
    read.push({ name: kind.name, a, b })
  }
  return Result.succeed({
    mistake: mistake === "none" ? undefined : mistake,
    input: {
      seed: Number(seed),
      commands: read,
      switches: parts(switches!).map((part) => {
        const [at, to] = pair(part)
        return { at, to }
      })
    }
  })
}
