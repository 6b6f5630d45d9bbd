/** The names of consumers, topics and task types. A command's flags list them, so this file imports neither a client nor a loop. */
import { analytics, analyticsProjection } from "../application/subscribers/Analytics.ts"
import { billing } from "../application/subscribers/Billing.ts"
import { inventory } from "../application/subscribers/Inventory.ts"
import { receipts } from "../application/subscribers/Receipts.ts"
import { emailType } from "../application/tasks/Email.ts"
import { paymentRecover } from "../application/tasks/PaymentRecover.ts"
import { reportType } from "../application/tasks/Report.ts"
import type { AppConfig } from "../Config.ts"
import { ordersTopic } from "../domain/Events.ts"
import type { Projection } from "../operations/rebuild/Projection.ts"

/** The subscribers of the orders topic. A new one is a file of its own and an entry here. */
export const subscribers = [receipts, inventory, billing, analytics]

/** What `paid-once rebuild` can make anew. */
export const projections: ReadonlyArray<Projection> = [analyticsProjection]

/** The consumers: the name and the topic of each. */
export const consumed: ReadonlyArray<{ readonly name: string; readonly topic: string }> = subscribers

/** The names of the consumers. */
export const consumerNames: ReadonlyArray<string> = subscribers.map(({ name }) => name)

/** The topics that the service publishes to. */
export const topicNames: ReadonlyArray<string> = [ordersTopic]

/** The names of all task types. */
export const taskTypeNames: ReadonlyArray<string> = [emailType, reportType, paymentRecover].map(({ name }) => name)

/** Which broker that is, for a person. */
export const brokerOf = ({ kafkaBrokers }: AppConfig): string =>
  kafkaBrokers === undefined ? "the embedded one, in the database" : `Kafka at ${kafkaBrokers.join(", ")}`
