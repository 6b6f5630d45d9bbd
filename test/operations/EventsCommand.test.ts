/** Events, faults, lag and status as an operator types them, beside a running service; and what every command does alike. */
import { assert, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { execFile } from "node:child_process"
import * as Path from "node:path"
import * as ServiceProcess from "../../src/cli/ServiceProcess.ts"
import { plantedEnv } from "../mutants/planted.ts"
import { eventually } from "../support/Counters.ts"
import { commandOf, Directory, environmentWith } from "../support/OperatorCommand.ts"
import { root, TestDatabase } from "../support/TestDatabase.ts"

const environment = environmentWith({})
const run = (name: string, ...args: ReadonlyArray<string>) => commandOf(name, environment)(...args)

const world = TestDatabase.layerPool.pipe(Layer.provideMerge(Directory.layer))

const post = (url: string, path: string, body: unknown, headers: Readonly<Record<string, string>> = {}) =>
  Effect.promise(async () => {
    const response = await fetch(`${url}${path}`, {
      method: "POST",
      headers: { "content-type": "application/json", ...headers },
      body: JSON.stringify(body)
    })
    return (await response.json()) as { readonly id: string }
  })

const order = (customerId: string) => ({
  customerId,
  currency: "EUR",
  lines: [{ sku: "tea", quantity: 1, unitAmountMinor: 100 }]
})

interface Found {
  readonly items: ReadonlyArray<{
    readonly eventId: string
    readonly eventType: string
    readonly aggregateId: string
    readonly traceId: string
    readonly status: string
  }>
}

const search = (...args: ReadonlyArray<string>) =>
  Effect.map(run("events", "search", "--json", ...args), ({ stderr, stdout }) => {
    assert.notStrictEqual(stdout, "", stderr)
    return (JSON.parse(stdout) as Found).items
  })

it.live(
  "events are found by customer, order, trace and type, and one is shown in full",
  () =>
    Effect.gen(function* () {
      const service = yield* ServiceProcess.start({ env: yield* environment })
      const url = service.url!
      const { id } = yield* post(url, "/orders", order("ada"))
      yield* post(url, `/orders/${id}/pay`, { paymentMethod: "pm_ok" }, { "idempotency-key": "one" })
      yield* post(url, "/orders", order("grace"))
      yield* eventually(
        "both events of the order to be published",
        Effect.map(
          search("--customer", "ada"),
          (found) => found.filter(({ status }) => status === "published").length === 2
        )
      )
      const ofAda = yield* search("--customer", "ada")
      assert.deepStrictEqual(
        ofAda.map(({ aggregateId, eventType }) => [aggregateId, eventType]),
        [
          [id, "OrderPaid"],
          [id, "OrderPlaced"]
        ]
      )
      const [paid, placed] = ofAda
      assert.deepStrictEqual(yield* search("--order", id.toUpperCase()), ofAda)
      assert.deepStrictEqual(yield* search("--trace", paid!.traceId, "--since", "1h"), [paid!])
      assert.deepStrictEqual(yield* search("--type", "OrderPaid", "--since", "1h"), [paid!])
      assert.deepStrictEqual(yield* search("--customer", "nobody"), [])

      const show = yield* run("events", "show", placed!.eventId)
      assert.strictEqual(show.code, 0, show.stderr)
      for (const part of [
        `header event-id: ${placed!.eventId}`,
        '"customerId":"ada"',
        "OrderPlaced, version 1, was written",
        "published to orders, partition"
      ]) {
        assert.include(show.stdout, part)
      }
      assert.strictEqual((yield* run("outbox", "show", placed!.eventId)).stdout, show.stdout)
      const story = yield* run("inbox", "show", "billing", paid!.eventId, "--json")
      assert.include(JSON.parse(story.stdout), { status: "applied", consumer: "billing" })
      assert.strictEqual((yield* run("inbox", "status")).code, 0)

      const lag = yield* run("consumers", "lag", "--json")
      assert.strictEqual(lag.code, 0, lag.stderr)
      const { items } = JSON.parse(lag.stdout) as {
        readonly items: ReadonlyArray<{
          readonly consumer: string
          readonly lag: number
          readonly partitions: ReadonlyArray<{ readonly owner: string }>
        }>
      }
      assert.deepStrictEqual(
        items.map(({ consumer }) => consumer),
        ["receipts", "inventory", "billing", "analytics"]
      )
      for (const { partitions } of items) {
        assert.strictEqual(partitions.length, 8)
        for (const { owner } of partitions) assert.match(owner, new RegExp(`^${service.pid}@.`))
      }
      assert.include(lag.stderr, "the broker is the embedded one")
      const status = yield* run("status")
      assert.strictEqual(status.code, 0, status.stderr)
      assert.match(status.stdout, /^billing +lag \d+ +0 retrying, 0 parked, 0 dead, 0 gaps$/m)
      assert.match(status.stdout, new RegExp(`^lanes +64 at ${service.pid}@`, "m"))
      assert.match(status.stdout, /^broker +answers$/m)
    }).pipe(Effect.scoped, Effect.provide(world)),
  300_000
)

it.live(
  "a fault that is armed crashes the running service once, and is used up when it comes back",
  () =>
    Effect.gen(function* () {
      const reason = ["--reason", "what then?", "--by", "ada"]
      const deaf = yield* Effect.scoped(
        Effect.gen(function* () {
          yield* ServiceProcess.start({ env: yield* environment })
          return yield* run("faults", "set", "pay.after-charge", "crash", ...reason)
        })
      )
      assert.strictEqual(deaf.code, 1)
      assert.include(
        deaf.stderr,
        "paid-once: no running process takes faults: start those that are to fail with FAULTS=on"
      )

      const env = { ...(yield* environment), FAULTS: "on", LOG_LEVEL: "Warn" }
      const service = yield* ServiceProcess.start({ env })
      const unknown = yield* run("faults", "set", "pay.after-charg", "crash", ...reason)
      assert.strictEqual(unknown.code, 2)
      assert.include(
        unknown.stderr,
        "there is no fault point pay.after-charg (pay.after-charge?); there are pay.after-intent"
      )
      const armed = yield* run("faults", "set", "pay.after-charge", "crash", ...reason)
      assert.strictEqual(armed.code, 0, armed.stderr)
      assert.match(
        (yield* run("faults", "list")).stdout,
        /pay\.after-charge +crash +1 .*ada: what then\?[^]*Taken by \d+@/
      )
      const { id } = yield* post(service.url!, "/orders", order("ada"))
      yield* Effect.ignore(
        Effect.tryPromise(() =>
          fetch(`${service.url}/orders/${id}/pay`, {
            method: "POST",
            headers: { "content-type": "application/json", "idempotency-key": "crash" },
            body: JSON.stringify({ paymentMethod: "pm_ok" })
          })
        )
      )
      assert.strictEqual(yield* service.exit, "SIGKILL")
      assert.include(service.output(), "a fault is set by ada: pay.after-charge=crash")

      const again = yield* ServiceProcess.start({ env })
      assert.deepInclude(JSON.parse((yield* run("faults", "list", "--json")).stdout), { faults: [] })
      assert.match(
        (yield* run("faults", "list")).stdout,
        new RegExp(`No fault is armed\\.[^]*STRUCK[^]*pay\\.after-charge +crash +${service.pid}@`)
      )
      const paid = yield* post(
        again.url!,
        `/orders/${id}/pay`,
        { paymentMethod: "pm_ok" },
        { "idempotency-key": "crash" }
      )
      assert.isDefined(paid)
      assert.strictEqual(
        (yield* run("faults", "clear", "pay.after-charge", ...reason)).stdout,
        "pay.after-charge is clear already.\n"
      )
    }).pipe(Effect.scoped, Effect.provide(world)),
  300_000
)

it.live(
  "wrong usage is one line on stderr and status 2, everywhere alike; unknown names are refused with the known ones",
  () =>
    Effect.gen(function* () {
      const id = "0192a000-0000-7000-8000-000000000000"
      const wrong: ReadonlyArray<readonly [ReadonlyArray<string>, string]> = [
        [["outbox", "retry", id], "Missing required flag: --reason (paid-once outbox retry --help)"],
        [["events", "show"], "Missing required argument: event-id (paid-once events show --help)"],
        [["events", "show", "x"], 'Invalid value for argument <event-id>: "x". Expected a UUID'],
        [["outbox", "list", "--limit", "0"], "Expected a value between 1 and 1000"],
        [["mail", "list", "--bogus"], "Unrecognized flag: --bogus"],
        [["bogus"], 'Unknown subcommand "bogus"'],
        [["outbox", "list", "--type", "OrderPayed"], "there is no event type OrderPayed: they are OrderPlaced, "],
        [["outbox", "list", "--topic", "order"], "there is no topic order: they are orders"],
        [
          ["inbox", "list", "--consumer", "bill"],
          "there is no consumer bill: they are receipts, inventory, billing, analytics"
        ],
        [["inbox", "show", "bill", id], "there is no consumer bill: they are receipts, "],
        [["inbox", "skip", "bill", id, "--reason", "x"], "there is no consumer bill: they are receipts, "],
        [["consumers", "lag", "--consumer", "bill"], "there is no consumer bill: they are receipts, "],
        [["events", "search", "--type", "OrderPayed"], "there is no event type OrderPayed: they are OrderPlaced, "],
        [["tasks", "list", "--type", "mail"], "there is no task type mail: they are email, "]
      ]
      const answers = yield* Effect.forEach(wrong, ([[name, ...args]]) => run(name!, ...args), { concurrency: 2 })
      answers.forEach(({ code, stderr, stdout }, index) => {
        const [args, expected] = wrong[index]!
        assert.strictEqual(code, 2, args.join(" "))
        assert.strictEqual(stdout, "", args.join(" "))
        assert.match(stderr, /^paid-once: [^\n]+\n$/, args.join(" "))
        assert.include(stderr, expected)
      })
      const wide = yield* run("events", "search", "--trace", "0".repeat(32))
      assert.strictEqual(wide.code, 1)
      assert.include(wide.stderr, "paid-once: a search by trace id reads the archive event by event: it needs a time")
    }).pipe(Effect.scoped, Effect.provide(world)),
  300_000
)

const inBash = (script: string, variables: Readonly<Record<string, string>>) =>
  Effect.callback<string>((resume) => {
    execFile(
      "bash",
      ["--norc", "-c", script],
      { env: { PATH: process.env["PATH"], ...plantedEnv(), ...variables }, timeout: 50_000 },
      (_, stdout, stderr) => resume(Effect.succeed(stdout + stderr))
    )
  })

const command = `'${process.execPath}' '${Path.join(root, "src/paid-once.js")}'`

it.live(
  "on a terminal a list fits its width and has colour, unless NO_COLOR is set; in a pipe neither",
  () =>
    Effect.gen(function* () {
      const env = yield* environment
      const onTerminal = (before: string) =>
        inBash(`script -qec "stty cols 60; ${before} ${command} faults list --all" /dev/null`, env)
      const coloured = yield* onTerminal("")
      assert.include(coloured, "\u001B[1mPOINT")
      assert.include(coloured, "…")
      const rows = (text: string) => text.split(/\r?\n/).filter((line) => line.startsWith("dispatcher.before-publish"))
      assert.isAtMost(rows(coloured)[0]!.length, 60)
      const plain = yield* onTerminal("NO_COLOR=1")
      assert.notInclude(plain, "\u001B[")
      assert.include(plain, "…")
      const piped = yield* run("faults", "list", "--all")
      assert.match(rows(piped.stdout)[0]!, /crash, fail, delay, duplicate, lose-ack$/)
      assert.notInclude(piped.stdout, "\u001B[")
    }).pipe(Effect.scoped, Effect.provide(world)),
  120_000
)

it.live(
  "bash completes commands and flags with the script that --completions prints",
  () =>
    Effect.gen(function* () {
      const words = (line: string) => {
        const all = line.split(" ")
        return `COMP_WORDS=(${all.map((word) => `"${word}"`).join(" ")}); COMP_CWORD=${all.length - 1}; COMP_LINE="${line}"; COMP_POINT=\${#COMP_LINE};`
      }
      const complete = (line: string) =>
        inBash(
          `source <(${command} --completions bash); f=$(complete -p paid-once | sed -E 's/.*-F ([^ ]+).*/\\1/'); ${words(line)} COMPREPLY=(); $f paid-once "\${COMP_WORDS[COMP_CWORD]}" "\${COMP_WORDS[COMP_CWORD-1]}"; printf '%s\\n' "\${COMPREPLY[@]}"`,
          env
        )
      const env = yield* environment
      assert.include((yield* complete("paid-once ev")).split(/\s+/), "events")
      assert.include((yield* complete("paid-once events ")).split(/\s+/), "search")
      assert.include((yield* complete("paid-once events search --cust")).split(/\s+/), "--customer")
    }).pipe(Effect.scoped, Effect.provide(world)),
  120_000
)
