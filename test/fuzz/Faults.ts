/** What strikes while requests are answered. Each draw is one fault, told in a sentence; it has ended when its effect has. */
import { Effect } from "effect"
import { SqlClient, type SqlError } from "effect/sql"
import type { ServiceProcessFailed } from "../../src/cli/ServiceProcess.ts"
import type { Dice } from "./Dice.ts"
import type { HostileGateway } from "./HostileGateway.ts"
import type { Records } from "./Records.ts"
import type { Service } from "./Service.ts"
import { slowClients, slownesses } from "./SlowClients.ts"

/** Points where a process may die or stand still. */
const points = [
  [
    "pay.after-intent",
    "pay.after-charge",
    "pay.before-commit",
    "pay.after-commit",
    "outbox.after-append",
    "outbox.after-commit"
  ],
  ["refund.after-intent", "recover.after-lookup", "recover.after-charge", "mail.after-send"]
].flat()
/** Points where an error strikes work that is tried again. At the others it would be the request's own 500. */
const loops = [
  [
    "dispatcher.after-fetch",
    "dispatcher.after-publish",
    "dispatcher.after-mark",
    "consumer.before-handler",
    "consumer.before-commit"
  ],
  ["consumer.after-commit", "consumer.after-offset", "task.during-run", "task.after-handler", "task.after-finish"]
].flat()

/** A value of `FAULTS`, which holds from the next start on. */
const drawFaults = (dice: Dice): string =>
  // A point once: FAULTS refuses it twice.
  Array.from(new Set(Array.from({ length: dice.int(3) }, () => dice.pick([...points, ...loops]))), (point) => {
    const action = dice.pick(loops.includes(point) ? ["crash", "delay", "fail"] : ["crash", "delay"])
    return action === "delay" ? `${point}=delay:${1 + dice.int(3)}:400` : `${point}=${action}`
  }).join(",")

export interface Strike {
  readonly what: string
  /** Returns what is wrong, where the service itself shows it: it did not stop as it should. */
  readonly run: Effect.Effect<string | undefined, ServiceProcessFailed | SqlError.SqlError, SqlClient.SqlClient>
}

/** Ends all sessions of the service, as a fail-over does. Ours are the fuzzer's and the gateway's. */
const endSessions = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  yield* sql`
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND application_name LIKE 'paid-once%'`
})

export const make = (options: {
  readonly dice: Dice
  readonly service: Service
  readonly gateway: HostileGateway
  /** Commands the sandbox's behaviour. */
  readonly command: (behaviour: object) => Effect.Effect<void>
  readonly records: Records
}): (() => Strike) => {
  const { command, dice, gateway, records, service } = options
  const none = Effect.as(undefined)
  const strikes: ReadonlyArray<() => Strike> = [
    () => {
      const faults = drawFaults(dice)
      return { what: `kill -9, and a start with FAULTS=${faults}`, run: service.restart("SIGKILL", faults) }
    },
    () => ({ what: "SIGTERM, and a start", run: service.restart("SIGTERM", "") }),
    () => {
      const millis = 200 + dice.int(1_500)
      return { what: `frozen for ${millis} ms`, run: none(service.freeze(millis)) }
    },
    () => ({ what: "all sessions of the database end", run: none(endSessions) }),
    () => {
      const count = 5 + dice.int(20)
      return { what: `${count} hostile records on the topic`, run: none(records.write(count)) }
    },
    () => {
      const behaviour = {
        mode: dice.pick(["slow", "down", "error", "error-after", "timeout", "timeout-after"]),
        delayMillis: 300,
        times: 1 + dice.int(20),
        webhooks: dice.pick(["once", "twice", "first", "never"])
      }
      return { what: `the gateway is ${JSON.stringify(behaviour)}`, run: none(command(behaviour)) }
    },
    () => ({
      what: "the gateway answers nonsense",
      run: none(gateway.misbehave(0.6).pipe(Effect.andThen(Effect.sleep(2_000)), Effect.ensuring(gateway.misbehave(0))))
    }),
    () => {
      const slowness = dice.pick(slownesses)
      const count = 5 + dice.int(40)
      return {
        what: `${count} clients ${slowness}`,
        run: none(Effect.flatMap(service.url, (url) => slowClients(url, slowness, count, 2_000)))
      }
    }
  ]
  // Each of them once before any of them again, so that a minute has them all.
  let deck: Array<() => Strike> = []
  return () => {
    if (deck.length === 0) deck = [...strikes]
    return deck.splice(dice.int(deck.length), 1)[0]!()
  }
}
