#!/usr/bin/env node
/**
 * The command line: `paid-once serve | gateway | migrate | maintenance run | status | outbox | inbox | events | tasks | payments | mail | consumers |
 * dispatcher | faults | audit | api-key | demo | reset`.
 */
import * as NodeServices from "@effect/platform-node/NodeServices"
import { Console, Effect, Layer, Option, Result } from "effect"
import { CliError, Command, Flag } from "effect/cli"
import { readFileSync } from "node:fs"
import * as Path from "node:path"
import * as Config from "../Config.ts"
import * as Roles from "../Roles.ts"
import * as Lifecycle from "../Lifecycle.ts"
import * as Main from "../main.ts"
import { Migrated } from "../postgres/Migrations.ts"
import { apiKey } from "./ApiKey.ts"
import { audit } from "./Audit.ts"
import { consumers, dispatcher } from "./Consumers.ts"
import { demo } from "./Demo.ts"
import { events } from "./Events.ts"
import { faults } from "./Faults.ts"
import { inbox } from "./Inbox.ts"
import { mail } from "./Mail.ts"
import * as MaintenanceCommand from "./Maintenance.ts"
import { outbox } from "./Outbox.ts"
import { payments } from "./Payments.ts"
import { ExitStatus, runMain } from "./Process.ts"
import { countOf } from "../platform/Plural.ts"
import { logging } from "../Settings.ts"
import { reset } from "./Reset.ts"
import { json } from "./Operator.ts"
import { status } from "./Status.ts"
import { tasks } from "./Tasks.ts"
import * as Usage from "./Usage.ts"

/** The hard limit of a stop: this default until the configuration is read. */
let hardMillis = 30_000

const config = Effect.tap(Config.load, (loaded) => {
  hardMillis = loaded.shutdownHardMillis
  return Effect.provide(Lifecycle.warnOfUnknown(process.env), logging(loaded))
})

const serve = Command.make(
  "serve",
  {
    json,
    roles: Flag.String("roles").pipe(
      Flag.withDescription(
        `which parts this process runs, with commas between them: ${Roles.roles.join(", ")} (default: all)`
      ),
      Flag.optional
    )
  },
  Effect.fnUntraced(function* ({ json, roles }) {
    const parsed = Roles.parseRoles(Option.getOrElse(roles, () => Roles.roles.join(",")))
    if (Result.isFailure(parsed)) {
      yield* Console.error(`paid-once: ${parsed.failure}`)
      return yield* Effect.fail(new ExitStatus(2))
    }
    return yield* Layer.launch(Main.service(yield* config, parsed.success, { json }))
  })
).pipe(Command.withDescription("Run the service, or some of its parts; several processes may share one database"))

const gateway = Command.make(
  "gateway",
  {},
  Effect.fnUntraced(function* () {
    return yield* Layer.launch(Main.gateway(yield* config))
  })
).pipe(Command.withDescription("Run the sandbox payment gateway alone, on GATEWAY_PORT"))

const migrate = Command.make(
  "migrate",
  { json },
  Effect.fnUntraced(function* ({ json }) {
    const loaded = yield* config
    const { applied } = yield* Effect.provide(Effect.service(Migrated), Main.migrated(loaded))
    yield* Console.log(
      json
        ? JSON.stringify({ applied })
        : applied.length === 0
          ? "The schema is up to date."
          : `Applied ${countOf(applied.length, "migration")}: ${applied.join(", ")}.`
    )
  })
).pipe(Command.withDescription("Apply pending migrations and leave; serve does it too"))

const maintenance = MaintenanceCommand.make((options) =>
  Effect.flatMap(config, (loaded) => Main.maintenance(loaded, options))
)

const { version } = JSON.parse(readFileSync(Path.join(Main.root, "package.json"), "utf8")) as {
  readonly version: string
}

const program = Command.make("paid-once").pipe(
  Command.withDescription("Orders and payments whose events are never lost and never applied twice"),
  Command.withSubcommands([
    serve,
    gateway,
    migrate,
    maintenance,
    status,
    outbox,
    inbox,
    events,
    tasks,
    payments,
    mail,
    consumers,
    dispatcher,
    faults,
    audit,
    apiKey,
    demo,
    reset
  ]),
  Command.run({ version }),
  // Help that was requested is a success; help after wrong usage is a failure.
  Effect.catchIf(
    (error) => CliError.isCliError(error),
    (error) =>
      Effect.fail(error._tag === "ShowHelp" && error.errors.length === 0 ? new ExitStatus(0) : new ExitStatus(2))
  ),
  Effect.scoped,
  Effect.provide(Layer.merge(NodeServices.layer, Usage.layer))
)

runMain(program, { hardMillis: () => hardMillis })
