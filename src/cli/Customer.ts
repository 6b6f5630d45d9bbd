/** `paid-once customer erase`: takes a customer's id out of all places where nothing needs it, and names the others (docs/erasure.md). */
import { Console, Effect, Option } from "effect"
import { Command, Flag } from "effect/cli"
import { EraseCustomer, type Erasure, type Progress } from "../application/erasure/EraseCustomer.ts"
import { isErased } from "../application/erasure/Places.ts"
import * as Config from "../Config.ts"
import { CustomerId } from "../domain/Ids.ts"
import { countOf, numberOf, plural } from "../platform/Plural.ts"
import { by, json, named, operatorOf, print, reason } from "./Operator.ts"
import { ExitStatus } from "./Process.ts"
import { tellingOf } from "./Telling.ts"

/** Topics that the service makes keep seven days, in segments of a day. */
const topicMillis = 8 * 86_400_000

const outcomeOf = ({ dryRun, left, orders, underWayCount }: Erasure): ReadonlyArray<string> => {
  if (dryRun) return [`${countOf(orders, "order")} ${plural(orders, "has", "have")} the customer's id.`]
  if (orders === 0) return [left === 0 ? "No order has this customer's id." : "Nothing was erased."]
  return [
    `Erased the customer of ${countOf(orders, "order")}: each has the id erased-ORDER, with its own id.`,
    ...(underWayCount === 0 && left > 0
      ? [`${countOf(left, "order")} ${plural(left, "has", "have")} come meanwhile: run it again.`]
      : [])
  ]
}

const underWayOf = ({ underWay, underWayCount }: Erasure): ReadonlyArray<string> =>
  underWayCount === 0
    ? []
    : [
        `${countOf(underWayCount, "thing")} ${plural(underWayCount, "is", "are")} under way, and ${plural(underWayCount, "needs", "need")} the id:`,
        ...underWay.map(({ command, orderId, what }) => `  order ${orderId}: ${what} (${command})`),
        ...(underWayCount > underWay.length ? [`  and ${numberOf(underWayCount - underWay.length)} more`] : [])
      ]

const answersOf = ({ count, keptDays, until }: Erasure["answers"]): string => {
  if (count === 0) return "none"
  const end =
    until !== null
      ? `the last until ${until}`
      : keptDays === 0
        ? "for ever: IDEMPOTENCY_RETENTION_DAYS is 0"
        : "no process of the service has noted how long it keeps them"
  return `${numberOf(count)}, ${end}`
}

const keptOf = ({ answers, lastEventAt }: Erasure): ReadonlyArray<string> => [
  "The id stays here:",
  `  answers to repeated requests (idempotency_keys): ${answersOf(answers)}`,
  `  the topic, and what its readers have copied: ${lastEventAt === null ? "until the date that the run told which erased his orders, if one did" : `until ${new Date(Date.parse(lastEventAt) + topicMillis).toISOString()}, where the service made the topic`}`,
  "  backups, sent mail, the gateway: out of reach (docs/erasure.md)"
]

/** Whether the words have the id by itself, and not inside of a longer word. */
const names = (words: string, id: string): boolean => {
  const isPart = (char: string | undefined) => char !== undefined && /[\p{L}\p{N}]/u.test(char)
  for (let at = words.indexOf(id); at >= 0; at = words.indexOf(id, at + 1)) {
    if (!isPart(words[at - 1]) && !isPart(words[at + id.length])) return true
  }
  return false
}

const wrong = (message: string) =>
  Effect.andThen(Console.error(`paid-once: ${message}`), Effect.fail(new ExitStatus(2)))

const erase = Command.make(
  "erase",
  {
    json,
    customer: Flag.String("customer").pipe(
      Flag.withDescription("the customer's id, as the orders have it"),
      Flag.withSchema(CustomerId)
    ),
    dryRun: Flag.Boolean("dry-run").pipe(
      Flag.withDescription("change nothing, tell what is under way and what would stay"),
      Flag.withDefault(false)
    ),
    reason: Flag.optional(reason),
    by
  },
  Effect.fnUntraced(function* ({ by, customer, dryRun, json, reason }) {
    if (!dryRun && Option.isNone(reason)) {
      return yield* wrong("customer erase needs --reason, which the audit keeps, or --dry-run")
    }
    const words = Option.getOrElse(reason, () => "")
    if (names(words, customer))
      return yield* wrong("the audit keeps --reason for ever: leave the customer's id out of it")
    if (isErased(customer)) return yield* wrong(`${customer} is the id that an erasure has left: it names no customer`)
    const config = yield* Config.load
    const main = yield* Effect.promise(() => import("../main/Erasure.ts"))
    yield* named(`the database is ${main.nameOf(config)}`)
    const operator = dryRun ? ("dry run" as const) : operatorOf({ by, reason: words })
    const telling = tellingOf(
      json,
      ({ phase }: Progress) => phase,
      ({ orders, phase }) =>
        `${phase === "looking" ? "Looked at" : "Erased the customer of"} ${countOf(orders, "order")}.`
    )
    const erasure = yield* EraseCustomer.use(({ run }) => run(customer, operator, telling)).pipe(
      Effect.provide(main.erasure(config))
    )
    yield* print(json, erasure, () => [...outcomeOf(erasure), ...underWayOf(erasure), ...keptOf(erasure)])
    if (erasure.underWayCount > 0 || (!dryRun && erasure.left > 0)) return yield* Effect.fail(new ExitStatus(1))
  })
).pipe(Command.withDescription("Take a customer's id out of all that is finished, and name what has it still"))

/** The command. Exit status 1 where something is under way. */
export const customer = Command.make("customer").pipe(Command.withSubcommands([erase]))
