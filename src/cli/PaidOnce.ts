#!/usr/bin/env node
/**
 * The command line: `paid-once serve | gateway | migrate | maintenance run | status | doctor | outbox | inbox | events | tasks | payments | reconcile | mail |
 * customer | rebuild | replay | archive | roll-forward | consumers | dispatcher | faults | drill | audit | api-key | demo | reset`.
 */
import * as NodeServices from "@effect/platform-node/NodeServices"
import { Effect, Layer } from "effect"
import { CliError, Command } from "effect/cli"
import { readFileSync } from "node:fs"
import * as Path from "node:path"
import { ExitStatus, runMain } from "./Process.ts"
import * as Usage from "./Usage.ts"

const words = process.argv.slice(2)
/** The flags that look into every command. */
const asksForAll = words.some((word) => word === "--wizard" || word.startsWith("--completions"))

/** A command, loaded where the line has its name: any other one is only listed. */
const command = <Name extends string, Input, Context, E, R>(
  name: Name,
  description: string,
  load: () => Promise<Command.Command<Name, Input, Context, E, R>>
) =>
  asksForAll || words.includes(name)
    ? load().then(Command.withDescription(description))
    : Promise.resolve(Command.make(name).pipe(Command.withDescription(description)))

const service = () => import("./Serve.ts")
const ofConsumers = () => import("./Consumers.ts")

const commands = await Promise.all([
  command(
    "serve",
    "Run the service, or some of its parts; several processes may share one database",
    async () => (await service()).serve
  ),
  command("gateway", "Run the sandbox payment gateway alone, on GATEWAY_PORT", async () => (await service()).gateway),
  command("migrate", "Apply pending migrations and leave; serve does it too", async () => (await service()).migrate),
  command(
    "maintenance",
    "Upkeep of the tables: partitions made ahead, and dropped after retention",
    async () => (await service()).maintenance
  ),
  command(
    "status",
    "What waits, what is paused, and what needs a person; exit status 1 if something does",
    async () => (await import("./Status.ts")).status
  ),
  command(
    "doctor",
    "Look at a live system: each finding with its fix; exit status 1 if there is one",
    async () => (await import("./Doctor.ts")).doctor
  ),
  command(
    "outbox",
    "Events that the broker refused: look, try again, give up",
    async () => (await import("./Outbox.ts")).outbox
  ),
  command(
    "inbox",
    "Events that a consumer could not apply: look, try again, give up",
    async () => (await import("./Inbox.ts")).inbox
  ),
  command(
    "events",
    "Events that wait or are in the archive: search, look",
    async () => (await import("./Events.ts")).events
  ),
  command(
    "tasks",
    "Durable work: look, try again, cancel, pause a type",
    async () => (await import("./Tasks.ts")).tasks
  ),
  command(
    "payments",
    "Payments that wait for a person or for the gateway: look, compare, settle",
    async () => (await import("./Payments.ts")).payments
  ),
  command(
    "reconcile",
    "Compare gateway, payments, orders, events, ledger, revenue, inventory and mail; exit status 1 if they differ",
    async () => (await import("./Reconcile.ts")).reconcile
  ),
  command(
    "rebuild",
    "Make a consumer's projection anew from the archive, while it goes on",
    async () => (await import("./Rebuild.ts")).rebuild
  ),
  command(
    "replay",
    "Hand events that a consumer has applied to its handler once more; a count without --apply",
    async () => (await import("./Replay.ts")).replay
  ),
  command(
    "archive",
    "Fill the archive from the topic, for a rebuild or a replay of events that it has lost",
    async () => (await import("./Archive.ts")).archive
  ),
  command(
    "roll-forward",
    "Give a database that was restored from a backup what its topic has and it has not",
    async () => (await import("./RollForward.ts")).rollForward
  ),
  command(
    "mail",
    "Mail that was not sent, or of unknown outcome: look, send again, resolve",
    async () => (await import("./Mail.ts")).mail
  ),
  command(
    "customer",
    "Erase a customer, where nothing of his is under way",
    async () => (await import("./Customer.ts")).customer
  ),
  command("consumers", "What reads events: look, pause, resume", async () => (await ofConsumers()).consumers),
  command("dispatcher", "What sends events: pause a topic, resume it", async () => (await ofConsumers()).dispatcher),
  command(
    "faults",
    "Failures on purpose, in a test system: look, arm, clear",
    async () => (await import("./Faults.ts")).faults
  ),
  command(
    "drill",
    "Break a test system on purpose, see what comes of it, mend it, and add up",
    async () => (await import("./Drill.ts")).drill
  ),
  command("audit", "What operators decided, and why", async () => (await import("./Audit.ts")).audit),
  command(
    "api-key",
    "Draw an API key for a program, and print its entry of API_KEYS",
    async () => (await import("./ApiKey.ts")).apiKey
  ),
  command(
    "demo",
    "Tell the story in a terminal: orders, a killed dispatcher, a queue that drains, sums that agree",
    async () => (await import("./Demo.ts")).demo
  ),
  command(
    "reset",
    "Clear the data of the embedded Postgres and of npm run kafka, and the mails",
    async () => (await import("./Reset.ts")).reset
  )
])

const { version } = JSON.parse(readFileSync(Path.resolve(import.meta.dirname, "../../package.json"), "utf8")) as {
  readonly version: string
}

const program = Command.make("paid-once").pipe(
  Command.withDescription("Orders and payments whose events are never lost and never applied twice"),
  Command.withSubcommands(commands),
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

runMain(program)
