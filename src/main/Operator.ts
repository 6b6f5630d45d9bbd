/** The services of the operator's commands, which run beside the service's processes. */
import { Layer } from "effect"
import { OutboxDeadLetters } from "../operations/OutboxDeadLetters.ts"
import { InboxDeadLetters } from "../operations/InboxDeadLetters.ts"
import { InboxReport } from "../operations/InboxReport.ts"
import { OutboxReport } from "../operations/OutboxReport.ts"
import { LaneWakeup } from "../outbox/LaneWakeup.ts"
import { Wakeups } from "../platform/Wakeups.ts"

/** Dead letters and reports, and a way to wake the dispatchers and consumers that run elsewhere. */
export const operations = Layer.mergeAll(
  OutboxDeadLetters.layer,
  OutboxReport.layer,
  InboxDeadLetters.layer,
  InboxReport.layer
).pipe(Layer.provide(LaneWakeup.layer), Layer.provide(Wakeups.layerDirect))
