/** `paid-once serve|gateway|migrate`, and `maintenance run`: what runs the service, or a part of it. */
import { Console, Effect, Layer, Option, Result } from "effect"
import { Command, Flag } from "effect/cli"
import { logging } from "../CommandSettings.ts"
import * as Config from "../Config.ts"
import * as Lifecycle from "../Lifecycle.ts"
import * as Main from "../main.ts"
import { countOf } from "../platform/Plural.ts"
import { Migrated } from "../postgres/Migrations.ts"
import * as Roles from "../Roles.ts"
import * as FirstCollection from "./FirstCollection.ts"
import * as Maintenance from "./Maintenance.ts"
import { json } from "./Operator.ts"
import { ExitStatus, limitStop } from "./Process.ts"

const config = Effect.tap(Config.load, (loaded) => {
  limitStop(loaded.shutdownHardMillis)
  return Effect.provide(Lifecycle.warnOfUnknown(process.env), logging(loaded))
})

/** The command. */
export const serve = Command.make(
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
    const loaded = yield* config
    yield* FirstCollection.collect
    return yield* Layer.launch(Main.service(loaded, parsed.success, { json }))
  })
)

/** The command. */
export const gateway = Command.make(
  "gateway",
  {},
  Effect.fnUntraced(function* () {
    return yield* Layer.launch(Main.gateway(yield* config))
  })
)

/** The command. */
export const migrate = Command.make(
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
)

/** The command. A variable that its shell does not have says nothing: its default is nobody's wish. */
export const maintenance = Maintenance.make((options) =>
  Effect.flatMap(config, (loaded) =>
    Effect.map(Main.maintenance(loaded, options), (done) => ({
      ...done,
      shell: [
        { table: "event_log", variable: "OUTBOX_RETENTION_DAYS", days: loaded.outboxRetentionDays },
        { table: "processed_events", variable: "INBOX_RETENTION_DAYS", days: loaded.inboxRetentionDays },
        { table: "outbox_tasks", variable: "TASK_RETENTION_DAYS", days: loaded.taskRetentionDays },
        { table: "idempotency_keys", variable: "IDEMPOTENCY_RETENTION_DAYS", days: loaded.idempotencyRetentionDays }
      ].filter(({ variable }) => (process.env[variable] ?? "") !== "")
    }))
  )
)
