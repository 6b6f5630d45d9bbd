/** Takes the pictures of docs/console: five prepared faults, some orders that went well, both themes, three widths. */
import { layer } from "@effect/vitest"
import { Effect } from "effect"
import { statSync } from "node:fs"
import * as Path from "node:path"
import * as World from "../console/World.ts"
import * as Browser from "../support/Browser.ts"
import { eventually } from "../support/Counters.ts"
import { root } from "../support/TestDatabase.ts"

const folder = Path.join(root, "docs/console")

/** A page, the text that says that it is there, and how it is taken. */
interface Shot {
  readonly name: string
  readonly path: string
  readonly shows: string
  readonly theme: "light" | "dark"
  readonly width: 360 | 820 | 1_400
  readonly height: number
  readonly before?: (page: Browser.BrowserPage) => Effect.Effect<void>
}

const shots = (orderId: string, paymentId: string): ReadonlyArray<Shot> => [
  { name: "overview-light", path: "", shows: "live ·", theme: "light", width: 1_400, height: 1_000 },
  { name: "overview-dark", path: "", shows: "live ·", theme: "dark", width: 1_400, height: 1_000 },
  { name: "overview-phone", path: "", shows: "live ·", theme: "light", width: 360, height: 740 },
  { name: "order", path: `orders/${orderId}`, shows: "receipts", theme: "light", width: 1_400, height: 900 },
  {
    name: "dead-letters",
    path: "dead-letters?side=inbox",
    shows: "Retry all that match",
    theme: "dark",
    width: 1_400,
    height: 900
  },
  {
    name: "settle",
    path: `payments/${paymentId}`,
    shows: "What happened",
    theme: "light",
    width: 820,
    height: 1_000,
    before: (page) => Effect.andThen(page.click("button", "Settle…"), page.see("It may become"))
  },
  { name: "break-it", path: "break-it", shows: "Over all", theme: "light", width: 820, height: 900 },
  { name: "dead-letters-phone", path: "dead-letters", shows: "OrderPlaced", theme: "dark", width: 360, height: 740 }
]

/** What all pictures may weigh together: people clone them. */
const maxBytes = 1_500_000

Browser.describe("pictures of the console", () => {
  layer(World.layer, { excludeTestServices: true })((it) => {
    it.effect("are taken", () =>
      Effect.gen(function* () {
        const { use } = yield* Browser.Browser
        const { url } = yield* World.startBeside({ FAULTS: "on" })
        yield* World.inboxDeadLetters()
        yield* World.outboxDeadLetter(url)
        yield* World.uncertainMail()
        yield* World.deadTask()
        const { paymentId } = yield* World.manualPayment(url)
        const orders = yield* Effect.forEach(Array.from({ length: 40 }), () =>
          World.ask(url, "/orders", World.newOrder())
        )
        yield* Effect.forEach(orders, ({ json }) => World.pay(url, json.id), { concurrency: 4, discard: true })
        let bytes = 0
        for (const { before, height, name, path, shows, theme, width } of shots(orders[0]!.json.id, paymentId)) {
          yield* use({ url, theme, width, height, allowed: /status of (401|404)/ }, (page) =>
            Effect.gen(function* () {
              yield* World.signIn(page, `/console/${path}`)
              yield* page.see(shows)
              yield* eventually(
                "no page to be loading",
                Effect.map(page.text, (text) => !/(Opening|Looking|Reading|Asking|Adding)[^\n]*…/.test(text))
              )
              if (before !== undefined) yield* before(page)
              const file = `${folder}/${name}.png` as const
              yield* Effect.promise(() => page.page.screenshot({ path: file }))
              bytes += statSync(file).size
            })
          )
        }
        if (bytes > maxBytes)
          return yield* Effect.die(new Error(`the pictures take ${bytes} bytes, and ${maxBytes} are allowed`))
      }).pipe(Effect.scoped)
    )
  })
})
