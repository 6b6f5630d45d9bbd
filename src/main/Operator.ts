/** The services of /admin, over the use cases that the service has anyway. */
import { Layer } from "effect"
import { SettlePayment } from "../application/SettlePayment.ts"
import { Journey } from "../application/views/Journey.ts"
import { PaceReport } from "../application/views/PaceReport.ts"
import { Sums } from "../application/views/Sums.ts"
import * as Config from "../Config.ts"
import { KnownNames } from "../http/admin/KnownNames.ts"
import { SettingsInForce } from "../http/admin/SettingsInForce.ts"
import { ConsumerLag } from "../operations/reports/ConsumerLag.ts"
import { ConsumerPace } from "../operations/reports/ConsumerPace.ts"
import { ConsumerReport } from "../operations/reports/ConsumerReport.ts"
import { LaneReport } from "../operations/reports/LaneReport.ts"
import * as SandboxControl from "../sandbox/SandboxControl.ts"
import { decisions } from "./Commands.ts"
import { consumed, consumerNames, taskTypeNames, topicNames } from "./Names.ts"

/** The decisions and reports of operators. */
export const admin = Layer.mergeAll(
  Layer.mergeAll(ConsumerReport.layer, Layer.provideMerge(Journey.layer, ConsumerPace.layer)).pipe(
    Layer.provide(ConsumerLag.layer(consumed)),
    Layer.provideMerge(decisions)
  ),
  SettlePayment.layer,
  LaneReport.layer(topicNames),
  PaceReport.layer,
  Sums.layer,
  SandboxControl.layer,
  Layer.effect(SettingsInForce, Config.inForce),
  KnownNames.layer({ topic: topicNames, consumer: consumerNames, "task type": taskTypeNames })
)
