/** The lines of a process that is ready: its console's address, with the link that signs in. */
import { assert, it } from "@effect/vitest"
import { ConfigProvider, Console, Effect, Layer, SubscriptionRef } from "effect"
import * as Banner from "../../src/Banner.ts"
import { Broker, BrokerUnavailable } from "../../src/brokers/Broker.ts"
import * as Config from "../../src/Config.ts"
import type { Role } from "../../src/Roles.ts"
import { BoundAddress } from "../../src/http/HttpServer.ts"

const broker = Layer.effect(
  Broker,
  Effect.map(SubscriptionRef.make(true), (available) => {
    const away = Effect.fail(new BrokerUnavailable({ operation: "test", cause: "none here" }))
    return Broker.of({ name: "test", available, ensureTopic: () => away, publish: () => away, consume: () => away })
  })
)

const url = "http://127.0.0.1:3000"

/** The output with this address of the console; undefined for a process without requests. */
const printed = (consoleUrl: string | undefined, json: boolean) =>
  Effect.gen(function* () {
    const lines: Array<string> = []
    const address = { host: "127.0.0.1", port: 3000, url, ...(consoleUrl === undefined ? {} : { consoleUrl }) }
    const config = yield* Effect.provide(Config.load, ConfigProvider.layer(ConfigProvider.fromUnknown({})))
    const roles = new Set<Role>(consoleUrl === undefined ? ["workers"] : ["http"])
    yield* Effect.scoped(Layer.build(Banner.layer({ config, roles, json }))).pipe(
      Effect.provide(Layer.merge(broker, Layer.succeed(BoundAddress, address))),
      Effect.updateService(Console.Console, (console) =>
        Object.assign(Object.create(console), { log: (line: unknown) => void lines.push(String(line)) })
      )
    )
    return lines.join("\n")
  })

it.effect("the banner has the link that signs in, and says that it does so once", () =>
  Effect.gen(function* () {
    const link = `${url}/console?token=abc`
    assert.include(yield* printed(link, false), `\n  Console    ${link}   (this link signs in once)\n`)
    assert.include(yield* printed(`${url}/console`, false), `\n  Console    ${url}/console\n`)
    // Without keys the orders are open, and /admin is not.
    assert.include(yield* printed(link, false), "pay and refund orders; the console and /admin need a sign-in\n")
    assert.strictEqual(JSON.parse(yield* printed(link, true)).consoleUrl, link)
    assert.notInclude(yield* printed(undefined, false), "Console")
    assert.notInclude(yield* printed(undefined, true), "consoleUrl")
  })
)
