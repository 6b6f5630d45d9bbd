/** `paid-once drill [NAME]`: breaks a service that runs with FAULTS=on, shows what comes of it, mends it, and adds up. */
import * as NodeHttpClient from "@effect/platform-node/NodeHttpClient"
import { Console, Effect, Exit, Layer, Option, References } from "effect"
import { Argument, Command, Flag } from "effect/cli"
import { Reconciliation } from "../application/reconciliation/Reconciliation.ts"
import type { AppConfig } from "../Config.ts"
import * as Config from "../Config.ts"
import { consumerNames } from "../main/Names.ts"
import { countOf } from "../platform/Plural.ts"
import { descriptions, type DrillName, drillNames } from "./drill/DrillNames.ts"
import * as Ground from "./drill/Ground.ts"
import * as Leftovers from "./drill/Leftovers.ts"
import * as Sums from "./drill/Sums.ts"
import * as Teller from "./drill/Teller.ts"
import * as Turn from "./drill/Turn.ts"
import { by, json, operatorOf, print, table } from "./Operator.ts"
import { ExitStatus } from "./Process.ts"

/** What a drill needs is loaded once it runs. */
const loaded = Effect.promise(async () => ({
  ...(await import("./drill/Drills.ts")),
  ...(await import("../main/Commands.ts")),
  ...(await import("../main/Cashier.ts"))
}))

const list = (asJson: boolean) =>
  print(asJson, { items: drillNames.map((name) => ({ name, shows: descriptions[name] })) }, () => [
    ...table([["DRILL", "SHOWS"], ...drillNames.map((name) => [name, descriptions[name]])]),
    "",
    "Start the service with FAULTS=on npm start, and run one: npm run -s paid-once -- drill poison",
    "A drill that was killed leaves what it broke. To mend that: npm run -s paid-once -- drill --mend"
  ])

/** Where the service answers, as far as its variables are those of this shell. */
const urlOf = ({ port }: AppConfig) => `http://127.0.0.1:${port ?? Config.defaultPort}`

/** The drill's steps, and then the checks. */
const steps = Effect.fnUntraced(function* (name: DrillName, ground: Ground.Ground) {
  const { drills } = yield* loaded
  const own = yield* drills[name](ground)
  const orders = yield* ground.orders
  const sums = yield* ground.run(Sums.of(orders, consumerNames))
  const { differences, notCompared } = yield* Reconciliation.use(({ run }) => run({ actor: ground.operator.actor }))
  const checks: ReadonlyArray<Sums.Check> = [
    ...own,
    ...sums,
    [
      `reconcile finds ${countOf(differences, "difference")} in all books`,
      differences === 0 && notCompared.length === 0
    ]
  ]
  for (const [what, holds] of checks) yield* ground.teller.tell(holds ? "holds" : "fails", what)
  return checks.every(([, holds]) => holds)
})

const run = Effect.fnUntraced(function* (
  name: DrillName,
  flags: { readonly json: boolean; readonly url: Option.Option<string>; readonly by: Option.Option<string> }
) {
  const given = Option.getOrUndefined(flags.url)
  if (given !== undefined && !(/^https?:\/\//.test(given) && URL.canParse(given))) {
    yield* Console.error(`paid-once: --url is the address of the service, as http://127.0.0.1:3000, and not "${given}"`)
    return yield* Effect.fail(new ExitStatus(2))
  }
  const config = yield* Config.load
  yield* Ground.allowed(config)
  const { cashier, nameOf, operator } = yield* loaded
  yield* Console.error(`paid-once: the database is ${nameOf(config)}`)
  const teller = Teller.make({ isQuiet: flags.json })
  if (!flags.json) yield* Console.log(`${name}: ${descriptions[name]}`)
  const ended = yield* Effect.exit(
    Effect.scoped(
      Effect.gen(function* () {
        const ground = yield* Ground.make({
          config,
          teller,
          drill: name,
          url: Option.getOrElse(flags.url, () => urlOf(config)).replace(/\/$/, ""),
          actor: operatorOf({ by: flags.by, reason: "" }).actor
        })
        return yield* steps(name, ground)
      })
    ).pipe(
      // The steps tell what is decided.
      Effect.provideService(References.MinimumLogLevel, "Warn"),
      Effect.provide(Layer.mergeAll(operator(config), cashier(config), NodeHttpClient.layerUndici))
    )
  )
  const ok = Exit.isSuccess(ended) && ended.value
  if (flags.json && !(Exit.isFailure(ended) && teller.steps.length === 0))
    yield* print(true, { drill: name, ok, steps: teller.steps }, () => [])
  if (Exit.isFailure(ended)) return yield* ended
  if (!ok) return yield* Effect.fail(new ExitStatus(1))
  return yield* flags.json ? Effect.void : Console.log("Nothing was lost, and nothing was applied twice.")
})

/** Mends what killed drills have left. It needs the database alone. */
const mend = Effect.fnUntraced(function* (flags: { readonly json: boolean; readonly by: Option.Option<string> }) {
  const config = yield* Config.load
  const { cashier, nameOf, operator } = yield* loaded
  yield* Console.error(`paid-once: the database is ${nameOf(config)}`)
  const teller = Teller.make({ isQuiet: flags.json })
  const { mended, waiting } = yield* Effect.scoped(
    Turn.take({ config, operator: operatorOf({ by: flags.by, reason: Leftovers.reasonOf("--mend") }), teller })
  ).pipe(
    Effect.provideService(References.MinimumLogLevel, "Warn"),
    Effect.provide(Layer.merge(operator(config), cashier(config)))
  )
  yield* print(flags.json, { mended, waiting }, () => [
    waiting.length > 0
      ? "Nothing is broken any more. What waits goes on once the service runs: npm run -s paid-once -- status"
      : mended.length === 0
        ? "No drill has left anything broken."
        : "Nothing that a drill has broken is left."
  ])
})

/** The command. */
export const drill = Command.make(
  "drill",
  {
    json,
    name: Argument.Literals("name", drillNames).pipe(
      Argument.withDescription("which one; without a name they are listed"),
      Argument.optional
    ),
    mend: Flag.Boolean("mend").pipe(
      Flag.withDescription("mend what drills have left that were killed; the service may be down"),
      Flag.withDefault(false)
    ),
    url: Flag.String("url").pipe(
      Flag.withDescription("where the service answers (default: this machine, at PORT)"),
      Flag.optional
    ),
    by
  },
  ({ mend: isMend, name, ...flags }) =>
    isMend
      ? Option.isNone(name)
        ? mend(flags)
        : Effect.andThen(
            Console.error("paid-once: drill --mend takes no name: it mends what any drill has left"),
            Effect.fail(new ExitStatus(2))
          )
      : Option.isNone(name)
        ? list(flags.json)
        : run(name.value, flags)
)
