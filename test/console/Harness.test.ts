/** The harness itself: what must fail a test does. */
import { assert, layer } from "@effect/vitest"
import { Cause, Effect, Exit } from "effect"
import { createServer, type Server } from "node:http"
import type { AddressInfo } from "node:net"
import * as Browser from "../support/Browser.ts"
import * as PageChecks from "../support/PageChecks.ts"

const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'"

/** Serves a page with a strict policy. `/app.js` is its script. */
const serving = (html: string, script = "") =>
  Effect.map(
    Effect.acquireRelease(
      Effect.callback<Server>((resume) => {
        const server = createServer((request, response) => {
          const isScript = request.url === "/app.js"
          response.setHeader("content-security-policy", policy)
          if (request.url !== "/" && !isScript) response.statusCode = 204
          response.setHeader("content-type", isScript ? "text/javascript" : "text/html; charset=utf-8")
          response.end(isScript ? script : html)
        })
        server.listen(0, "127.0.0.1", () => resume(Effect.succeed(server)))
      }),
      (server) => Effect.sync(() => void (server.closeAllConnections(), server.close()))
    ),
    (server) => `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  )

const page = (body: string) =>
  `<!doctype html><html lang="en"><head><title>A page</title></head><body><main><h1>A page</h1>${body}</main><script src="/app.js"></script></body></html>`

Browser.describe("the browser harness", () => {
  layer(Browser.Browser.layer, { excludeTestServices: true })((it) => {
    it.effect("a page is used by role and name, under its policy, and is checked with axe in both themes", () =>
      Effect.gen(function* () {
        const { use } = yield* Browser.Browser
        const script = `document.querySelector("button").onclick = () => {
          document.querySelector("output").textContent = "hello " + document.querySelector("input").value
        }`
        const url = yield* serving(page("<label>Name <input></label><button>Greet</button><output></output>"), script)
        for (const theme of ["light", "dark"] as const) {
          yield* use({ url, theme, width: 360 }, (page) =>
            Effect.gen(function* () {
              yield* page.visit("/")
              assert.strictEqual(
                yield* page.evaluate(`matchMedia("(prefers-color-scheme: dark)").matches`),
                theme === "dark"
              )
              yield* page.fill("Name", "ada")
              yield* page.click("button", "Greet")
              yield* page.see("hello ada")
              yield* PageChecks.accessible(page, "the page")
              yield* PageChecks.fits(page, "the page")
            })
          )
        }
      }).pipe(Effect.scoped)
    )

    const failures: ReadonlyArray<readonly [what: string, html: string, script: string, said: RegExp]> = [
      ["a script that throws", page(""), "throw new Error('so bad')", /exception: .*so bad/],
      ["an error in the console", page(""), "console.error('so sad')", /console: so sad/],
      ["a script in the page", page("<script>document.title = 'x'</script>"), "", /policy: .*script-src/],
      ["a style in the page", page("<p style='color: red'>red</p>"), "", /policy: .*style-src/],
      [
        "a request to another host",
        page("<img alt='' src='http://127.0.0.2:9/x.png'>"),
        "",
        /asks http:\/\/127\.0\.0\.2|policy/
      ]
    ]
    it.effect("a script that throws, an error, a breach of the policy and another host fail the test", () =>
      Effect.gen(function* () {
        const { use } = yield* Browser.Browser
        for (const [what, html, script, said] of failures) {
          const url = yield* serving(html, `${script}\n`)
          const exit = yield* Effect.exit(
            use({ url }, (page) => Effect.andThen(page.visit("/"), Effect.asVoid(page.see("A page"))))
          )
          assert.isTrue(Exit.isFailure(exit), what)
          if (Exit.isFailure(exit)) assert.match(Cause.pretty(exit.cause), said, what)
          yield* use({ url, allowed: /./ }, (page) => page.visit("/"))
        }
      }).pipe(Effect.scoped)
    )

    it.effect("axe's findings and what is too wide fail the test, and name the element", () =>
      Effect.gen(function* () {
        const { use } = yield* Browser.Browser
        const url = yield* serving(page("<input><pre>" + "wide".repeat(200) + "</pre>"))
        yield* use({ url, width: 360 }, (page) =>
          Effect.gen(function* () {
            yield* page.visit("/")
            const found = yield* Effect.exit(PageChecks.accessible(page, "the page"))
            assert.match(String(found), /label: .*\n.*<input>/)
            assert.match(String(yield* Effect.exit(PageChecks.fits(page, "the page"))), /wider than its window: .*wide/)
          })
        )
      }).pipe(Effect.scoped)
    )
  })
})
