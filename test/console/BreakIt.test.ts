/** A demo that stays, broken by a person on the page: its own processes, its broker and its http, and the page that comes back. */
import { assert, layer } from "@effect/vitest"
import { Deferred, Effect } from "effect"
import { spawn } from "node:child_process"
import * as Path from "node:path"
import { drillNames } from "../../src/cli/drill/DrillNames.ts"
import * as Browser from "../support/Browser.ts"
import { eventually } from "../support/Counters.ts"
import * as PageChecks from "../support/PageChecks.ts"
import { plantedEnv } from "../mutants/planted.ts"

const entry = Path.resolve(import.meta.dirname, "../../src/paid-once.js")

/** Starts `paid-once demo --stay`, and answers with the link that it prints. Ends it as Ctrl-C does. */
const demo = Effect.gen(function* () {
  const link = yield* Deferred.make<string>()
  const ended = yield* Deferred.make<number | null>()
  let output = ""
  yield* Effect.acquireRelease(
    Effect.sync(() => {
      const child = spawn(process.execPath, [entry, "demo", "--stay"], {
        stdio: ["ignore", "pipe", "inherit"],
        env: { PATH: process.env["PATH"], HOME: process.env["HOME"], ...plantedEnv() }
      })
      child.stdout.on("data", (chunk: Buffer) => {
        output += chunk.toString()
        const found = /http:\/\/\S+#demo=\S+/.exec(output)
        if (found !== null) Effect.runSync(Deferred.succeed(link, found[0]))
      })
      child.on("exit", (code) => Effect.runSync(Deferred.succeed(ended, code)))
      return child
    }),
    (child) =>
      Effect.gen(function* () {
        child.kill("SIGINT")
        assert.strictEqual(yield* Deferred.await(ended), 0, output)
      })
  )
  const url = new URL(yield* Deferred.await(link))
  return { url: url.origin, path: url.pathname + url.search + url.hash }
})

/** As long as a drill waits before it fails. */
const drillSeconds = 120

/** The control is another origin. What a service that is killed does not answer is an error of the browser. */
const allowed = /asks http:\/\/127\.0\.0\.1|ERR_|status of (401|404|409|50\d)/

Browser.describe("the console of a demo that stays", () => {
  layer(Browser.Browser.layer, { excludeTestServices: true })((it) => {
    it.effect(
      "processes are frozen, killed and started, the broker goes and comes, each drill runs, and the story ends with sums that agree",
      () =>
        Effect.gen(function* () {
          const { path, url } = yield* demo
          const { use } = yield* Browser.Browser
          yield* use({ url, allowed }, (page) =>
            Effect.gen(function* () {
              const get = (asked: string) =>
                page.evaluate<string>(`fetch(${JSON.stringify(asked)}).then((answer) => answer.text(), () => "")`)
              const load = (...keys: ReadonlyArray<"ArrowRight" | "Home">) =>
                Effect.gen(function* () {
                  yield* page.click("link", "Orders")
                  yield* page.see("Make load")
                  yield* Effect.promise(() => page.page.focus("#load-rate"))
                  yield* page.press(...keys)
                  yield* page.click("link", "Break it")
                  yield* page.see("Processes and broker")
                })
              yield* page.visit(path)
              yield* page.see("Processes and broker")
              assert.strictEqual(yield* page.evaluate("location.search + location.hash"), "")
              yield* PageChecks.accessible(page, "the processes of a demo")
              yield* load("ArrowRight", "ArrowRight", "ArrowRight")

              yield* page.click("button", "Freeze dispatcher-1")
              yield* page.click("button", "Kill dispatcher-2")
              yield* page.see("has ended: SIGKILL")
              yield* page.click("button", "Start dispatcher-2")
              yield* eventually(
                "dispatcher-2 to run again",
                Effect.map(page.count({ role: "button", name: "Freeze dispatcher-2" }), (n) => n === 1)
              )

              yield* page.click("button", "Take the broker away")
              yield* page.see("Bring the broker back")
              yield* eventually(
                "the service to see it",
                Effect.map(get("/admin/consumers"), (text) => text.includes("broker unavailable"))
              )
              yield* page.click("button", "Run the drill poison")
              yield* page.see("the broker is away: bring it back before a drill")
              yield* page.click("button", "Bring the broker back")
              yield* page.click("button", "Thaw dispatcher-1")
              yield* load("Home")
              yield* page.see("All sums agree.")
              const story =
                /dispatcher-1, process \d+, is frozen[^]*dispatcher-2, process \d+, has ended: SIGKILL[^]*dispatcher-2 runs as process \d+[^]*The broker is taken away[^]*The broker is back[^]*dispatcher-1, process \d+, is thawed[^]*All sums agree\./
              // The sums stand above the story, which may still be on its way.
              yield* eventually(
                "the story to be told in its order",
                Effect.map(page.text, (text) => story.test(text.split("What happened")[1] ?? ""))
              )

              for (const name of drillNames) {
                yield* page.click("button", `Run the drill ${name}`)
                yield* eventually(
                  `the drill ${name} to end`,
                  Effect.map(page.text, (text) => text.includes(`The drill ${name} has ended`)),
                  drillSeconds
                )
                yield* page.see(`The drill ${name} has ended: the sums agree`)
                yield* page.see(`${name}: ✓ reconcile finds 0 differences in all books`)
              }

              // Its sessions die with it. The page signs in again by itself.
              yield* page.click("button", "Kill http")
              yield* page.see("http, process")
              yield* page.click("button", "Start http")
              yield* eventually(
                "the page to be signed in again",
                Effect.map(get("/admin/session"), (text) => text.includes("canWrite"))
              )
              yield* page.see("All sums agree.")

              // The service itself ends no process.
              for (const asked of [
                "/admin/processes/http/kill",
                "/processes/http/kill",
                "/admin/broker/take-away",
                "/admin/drills/outage"
              ]) {
                const status = yield* page.evaluate<number>(
                  `fetch("${asked}", { method: "POST" }).then(({ status }) => status)`
                )
                assert.strictEqual(status, 404, asked)
              }
              assert.notMatch(yield* get("/openapi.json"), /\/(processes|broker|drills)\//)
            })
          )
        }).pipe(Effect.scoped),
      400_000
    )
  })
})
