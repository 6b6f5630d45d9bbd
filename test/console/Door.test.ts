/** The console's door in a real browser: the link of the start, the cookie, and pages of other ports, which to a browser are the same site. */
import { assert, layer } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { createServer, type Server } from "node:http"
import type { AddressInfo } from "node:net"
import * as HttpServer from "../../src/http/HttpServer.ts"
import * as Browser from "../support/Browser.ts"
import { service } from "../http/Service.ts"

/** A page without any figures: the service of this test has the door alone. */
const quietPage = "/console/no-such-page"
/** The page asks for figures all the same. Signing in fails where the test wants it to. */
const allowed = /status of (401|403|404|500|503)/

/** A page of another program on this machine, which may run any script. */
const neighbour = Effect.map(
  Effect.acquireRelease(
    Effect.callback<Server>((resume) => {
      const server = createServer((_, response) => {
        response.setHeader("content-type", "text/html")
        response.end("<!doctype html><title>A neighbour</title><p>A neighbour</p>")
      })
      server.listen(0, "127.0.0.1", () => resume(Effect.succeed(server)))
    }),
    (server) => Effect.sync(() => void (server.closeAllConnections(), server.close()))
  ),
  (server) => `http://127.0.0.1:${(server.address() as AddressInfo).port}`
)

Browser.describe("the console's door", () => {
  layer(Layer.merge(service, Browser.Browser.layer), { excludeTestServices: true, timeout: 120_000 })((it) => {
    it.effect("the link signs in once, leaves no token behind, and a neighbour's page can't use the session", () =>
      Effect.gen(function* () {
        const { consoleUrl = "", url } = yield* HttpServer.BoundAddress
        const { use } = yield* Browser.Browser
        const link = quietPage + new URL(consoleUrl).search
        const other = yield* neighbour

        yield* use({ url, allowed: /./ }, ({ evaluate, page, see, visit }) =>
          Effect.gen(function* () {
            yield* visit(link)
            yield* see("There is no page at this address.")
            assert.strictEqual(page.url(), url + quietPage)
            assert.strictEqual(yield* evaluate("document.cookie"), "")
            assert.strictEqual(
              yield* evaluate(
                "JSON.stringify([...Object.values(localStorage), ...Object.values(sessionStorage)].filter((value) => value.length > 40))"
              ),
              "[]"
            )
            const cookies = yield* Effect.promise(() => page.browserContext().cookies())
            assert.deepStrictEqual(
              cookies.map(({ httpOnly, path, sameSite }) => ({ httpOnly, path, sameSite })),
              [{ httpOnly: true, path: "/", sameSite: "Strict" }]
            )

            yield* Effect.promise(() => page.goto(other))
            const outcomes = yield* evaluate(`Promise.all([
              fetch("${url}/admin/session", { credentials: "include" }).then(() => "read", () => "refused"),
              fetch("${url}/admin/session", { method: "DELETE", credentials: "include" }).then(() => "ended", () => "refused"),
              fetch("${url}/orders", { method: "POST", mode: "no-cors", credentials: "include", body: "{}" }).then(() => "sent", () => "refused"),
              new Promise((resolve) => {
                const image = new Image()
                image.onload = () => resolve("embedded")
                image.onerror = () => resolve("refused")
                image.src = "${url}/console/icon.svg"
              }),
              new Promise((resolve) => {
                const frame = document.createElement("iframe")
                frame.onload = () => { try { resolve(frame.contentDocument === null ? "blocked" : "shown") } catch { resolve("blocked") } }
                frame.src = "${url}/console"
                document.body.append(frame)
              })
            ])`)
            assert.deepStrictEqual(outcomes, ["refused", "refused", "refused", "refused", "blocked"])

            yield* visit(quietPage)
            yield* see("There is no page at this address.")
            const session = yield* evaluate(`fetch("/admin/session").then((answer) => answer.json())`)
            assert.deepStrictEqual(session, { actor: "admin", canWrite: true })
            // The browser takes no text for markup, whoever writes it.
            const written = yield* evaluate(
              `(() => { try { document.createElement("p").innerHTML = "<b>x</b>" } catch ({ name }) { return name } })()`
            )
            assert.strictEqual(written, "TypeError")
          })
        )

        // The link was used: another browser is asked for a token.
        yield* use({ url, allowed }, ({ click, fill, page, see, visit }) =>
          Effect.gen(function* () {
            yield* visit(link)
            yield* see("Operator's token")
            yield* see("This link was used already")
            yield* see("a restart prints another")
            assert.strictEqual(page.url(), url + quietPage)
            yield* fill("Operator's token", "a guess")
            yield* click("button", "Sign in")
            yield* see("This is no token of this service")
          })
        )
      })
    )
  })
})
