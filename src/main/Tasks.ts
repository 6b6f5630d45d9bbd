/** Background tasks: their queue, which every process has, and the workers that run them. */
import { Layer } from "effect"
import * as Path from "node:path"
import * as FileTransport from "../application/mail/FileTransport.ts"
import { MailDeliveries } from "../application/mail/MailDeliveries.ts"
import * as SmtpTransport from "../application/mail/SmtpTransport.ts"
import { handler as recoverPayment } from "../application/RecoverPayment.ts"
import * as StrandedPayments from "../application/StrandedPayments.ts"
import { email } from "../application/tasks/Email.ts"
import { report } from "../application/tasks/Report.ts"
import type { AppConfig } from "../Config.ts"
import * as PoolMetrics from "../operations/PoolMetrics.ts"
import * as PausedTaskTypes from "../operations/pauses/PausedTaskTypes.ts"
import * as ReservedPool from "../postgres/ReservedPool.ts"
import { TaskClaim } from "../tasks/TaskClaim.ts"
import { TaskFinish } from "../tasks/TaskFinish.ts"
import type { TaskHandler } from "../tasks/TaskHandler.ts"
import { TaskLeases } from "../tasks/TaskLeases.ts"
import { Tasks } from "../tasks/Tasks.ts"
import { TaskWakeup } from "../tasks/TaskWakeup.ts"
import { workerConnections, TaskWorkers } from "../tasks/TaskWorkers.ts"

/** The handlers of all task types. A new one is a file of its own, an entry here, and its name in Names.ts. */
const handlers = (config: AppConfig) => [
  email,
  report,
  recoverPayment({
    delaysMillis: config.paymentRecoverDelaysMillis,
    gatewayTimeoutMillis: config.gatewayTimeoutMillis
  })
]

type HandlerNeeds = ReturnType<typeof handlers>[number] extends TaskHandler<infer R> ? R : never

/** Enqueues tasks, in the transaction of whoever needs them. */
export const tasks = Layer.provideMerge(Tasks.layer, TaskWakeup.layer)

/** The mail server of SMTP_URL, or files under the data directory. */
const mail = (config: AppConfig) =>
  Layer.merge(
    MailDeliveries.layer,
    config.smtpUrl === undefined
      ? FileTransport.layer(Path.join(config.dataDirectory, "mail"))
      : SmtpTransport.layer(config.smtpUrl)
  )

/** Tasks are claimed, renewed and finished on connections of their own: handlers that use up the pool don't cost them their leases. */
const workersDatabase = ReservedPool.layer("workers", workerConnections)

/** Runs the tasks that are due. */
export const workers = (config: AppConfig) =>
  Layer.merge(TaskWorkers.layer<HandlerNeeds>(handlers(config)), StrandedPayments.layer).pipe(
    Layer.provide(mail(config)),
    Layer.provide(
      Layer.mergeAll(
        // Without it an operator's pause of a type does nothing.
        Layer.provide(PausedTaskTypes.layer, TaskClaim.layer),
        TaskLeases.layer,
        TaskFinish.layer,
        // Without this line nobody sees that the workers' pool runs dry.
        PoolMetrics.layer("workers")
      ).pipe(Layer.provide(workersDatabase))
    )
  )
