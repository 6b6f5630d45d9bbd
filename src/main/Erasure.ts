/** Erasing a customer, on a database that is there. */
import { Layer } from "effect"
import { EraseCustomer } from "../application/erasure/EraseCustomer.ts"
import { Subscribers } from "../application/Timeline.ts"
import { commandSettings, logging } from "../CommandSettings.ts"
import type { AppConfig } from "../Config.ts"
import { consumerNames } from "./Names.ts"
import { foundDatabase } from "./Storage.ts"

export { nameOf } from "./Storage.ts"

export const erasure = (config: AppConfig) =>
  EraseCustomer.layer.pipe(
    Layer.provide(Layer.succeed(Subscribers, { names: consumerNames })),
    Layer.provide(foundDatabase(config)),
    Layer.provide(commandSettings(config)),
    // As in Commands.ts.
    Layer.merge(logging(config))
  )
