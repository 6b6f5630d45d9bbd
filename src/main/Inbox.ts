/** The inbox: the subscribers, and a consumer for each of them. */
import { Layer } from "effect"
import * as InboxHealth from "../http/InboxHealth.ts"
import * as Consumer from "../inbox/Consumer.ts"
import { Inbox } from "../inbox/Inbox.ts"
import { AppliedEvents } from "../operations/AppliedEvents.ts"
import * as InboxMetrics from "../operations/InboxMetrics.ts"
import * as PoolMetrics from "../operations/PoolMetrics.ts"
import * as PausedConsumers from "../operations/pauses/PausedConsumers.ts"
import type { Tasks } from "../tasks/Tasks.ts"
import * as Consumers from "./Consumers.ts"
import { consumerNames, subscribers } from "./Names.ts"

/** Marks events as applied, and tells which are. */
export const inbox = Layer.merge(Inbox.layer, AppliedEvents.layer)

/** Reads the topics and applies each event once, on connections of its own. */
export const consumers = Layer.mergeAll(
  InboxHealth.layer(consumerNames),
  // Without this line nobody sees how far the consumers are behind.
  InboxMetrics.layer(subscribers),
  ...subscribers.map((subscriber) => Consumer.layer<Tasks>(subscriber))
).pipe(
  // Without this line an operator's pause of a consumer does nothing.
  Layer.provide(PausedConsumers.layer),
  Layer.provide(Layer.provide(Consumers.steps, Consumers.database)),
  // Without this line nobody sees that the consumers' pool runs dry.
  Layer.merge(Layer.provide(PoolMetrics.layer("consumers"), Consumers.database))
)
