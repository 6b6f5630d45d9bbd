/** Mistakes at the edge to the gateway, and in what an operator sets and reads. */
import type { Mutant } from "./mutants.ts"

export const gatewayMutants: ReadonlyArray<Mutant> = [
  {
    name: "faults-at-rest",
    breaks: "a fault that is set after a claim strikes a worker that has claimed nothing",
    file: "src/tasks/TaskWorker.ts",
    find: `if (tasks.length > 0) yield* faults.at("task.after-claim")`,
    replace: `yield* faults.at("task.after-claim")`,
    seenBy: { file: "test/tasks/Worker.test.ts", test: "a fault after a claim waits" }
  },
  {
    name: "any-action-anywhere",
    breaks: "a fault with an action that its point does not have is set, and nothing happens",
    file: "src/platform/FaultInjection.ts",
    find: "if (!actions.includes(action)) {",
    replace: "if (false) {",
    seenBy: { file: "test/platform/Faults.test.ts", test: "an action that a point does not have" }
  },
  {
    name: "shows-a-wrong-password",
    breaks: "a password that was written into the wrong variable is printed at the start",
    file: "src/Variable.ts",
    find: 'text.slice(0, maxSearched).replaceAll(/\\S*:\\S*@/g, "…@")',
    replace: "text.slice(0, maxSearched)",
    seenBy: { file: "test/main/Variables.test.ts", test: "no password is shown" }
  },
  {
    name: "prints-the-gateways-password",
    breaks: "the password in GATEWAY_URL is printed in the banner and in traces",
    file: "src/platform/HttpTarget.ts",
    find: `url.password = ""`,
    replace: "",
    seenBy: { file: "test/main/Variables.test.ts", test: "user and password of a gateway" }
  },
  {
    name: "timeout-as-long-as-the-key",
    breaks: "a request that is slow to arrive finds its key forgotten, and charges again",
    file: "src/Config.ts",
    find: "config.gatewayTimeoutMillis * timeoutsInRetention >",
    replace: "config.gatewayTimeoutMillis * 0 >",
    seenBy: { file: "test/main/Variables.test.ts", test: "a timeout of the gateway lies far inside" }
  },
  {
    name: "reads-service-links",
    breaks: "a service called gateway in the cluster stops the start of every pod",
    file: "src/Variable.ts",
    find: ` || (name.endsWith("_PORT") && serviceLink.test(text))`,
    replace: "",
    seenBy: { file: "test/main/Variables.test.ts", test: "the link that Kubernetes sets" }
  },
  {
    name: "any-name-is-fine",
    breaks: "DATABSE_URL starts an embedded Postgres, and nobody says so",
    file: "src/UnknownVariables.ts",
    find: "    .flatMap((name) => meantBy(name, candidates) ?? [])",
    replace: "    .flatMap(() => [])",
    seenBy: { file: "test/main/Variables.test.ts", test: "a variable that looks like one of ours" }
  },
  {
    name: "mail-for-everybody",
    breaks: "every user of the machine reads the customers' mail",
    file: "src/application/mail/FileTransport.ts",
    find: "await chmod(directory, 0o700)",
    replace: "",
    seenBy: { file: "test/application/mail/FileTransport.test.ts", test: "a mail can be read by its user alone" }
  },
  {
    name: "reads-without-end",
    breaks: "a gateway that never stops answering fills the memory until the process dies",
    file: "src/platform/BoundedBody.ts",
    find: "if (body.length + chunk.length > maxBytes) return",
    replace: "if (false) return",
    seenBy: { file: "test/http/HostileGateway.test.ts", test: "an answer that never ends" }
  },
  {
    name: "words-as-they-come",
    breaks: "a NUL in a decline's reason makes its report fail for ever, and a megabyte of it becomes an event",
    file: "src/application/Gateway.ts",
    find: "presentable(text, maxTextLength)",
    replace: "text",
    seenBy: { file: "test/application/GatewayWebhook.test.ts", test: "a reason that no column" }
  },
  {
    name: "any-amount-is-a-capture",
    breaks: "an order of 25.00 EUR is paid by a capture of 0.01",
    file: "src/application/PaymentOutcomes.ts",
    find: `outcome._tag === "Captured" && ReportedAmount.contradicts(outcome, payment)`,
    replace: "false",
    seenBy: { file: "test/application/AtTheGateway.test.ts", test: "a capture of another amount in" }
  },
  {
    name: "a-part-is-the-whole",
    breaks: "a refund of a part at the gateway is booked as one of the whole amount",
    file: "src/application/PaymentOutcomes.ts",
    find: ": !ReportedAmount.confirms(amount, payment)",
    replace: ": false",
    seenBy: { file: "test/application/AtTheGateway.test.ts", test: "a refund at the gateway of anything but" }
  },
  {
    name: "refunds-there-are-not-ours",
    breaks: "a refund that a person made at the gateway is ignored, and the order stays paid",
    file: "src/domain/Payment.ts",
    find: `captured: ["refunding", "refunded", "manual"]`,
    replace: `captured: ["refunding", "manual"]`,
    seenBy: { file: "test/application/AtTheGateway.test.ts", test: "a refund of the whole charge at the gateway" }
  },
  {
    name: "refunds-a-disputed-payment",
    breaks: "a customer gets the money back twice: from the bank and from the shop",
    file: "src/application/RefundOrder.ts",
    find: `payment.status === "manual" && payment.refundAgeMillis === null`,
    replace: "false",
    seenBy: { file: "test/application/AtTheGateway.test.ts", test: "a refund at the gateway of anything but" }
  },
  {
    name: "forgets-early-reports",
    breaks: "a refund that is reported before its charge has an outcome is accepted, and lost",
    file: "src/application/GatewayWebhook.ts",
    find: "return yield* new ReportTooEarly({ paymentId: id })",
    replace: "return payment",
    seenBy: { file: "test/application/AtTheGateway.test.ts", test: "without an answer about the charge" }
  },
  {
    name: "one-secret-only",
    breaks: "every report that is still signed with the old secret is refused while the secret is replaced",
    file: "src/platform/SignedMessage.ts",
    find: "for (const secret of secrets) {",
    replace: "for (const secret of secrets.slice(0, 1)) {",
    seenBy: { file: "test/platform/SignedMessage.test.ts", test: "while a secret is replaced" }
  },
  {
    name: "first-signature-only",
    breaks: "a report that is signed with two secrets is refused if the known one comes second",
    file: "src/platform/SignedMessage.ts",
    find: "for (const signature of signatures)",
    replace: "for (const signature of signatures.slice(0, 1))",
    seenBy: { file: "test/platform/SignedMessage.test.ts", test: "a sender may sign with several secrets" }
  },
  {
    name: "messages-of-tomorrow",
    breaks: "a message that a clock far ahead has signed can be sent again for as long as it is ahead",
    file: "src/platform/SignedMessage.ts",
    find: "Math.abs(nowSeconds - atSeconds)",
    replace: "nowSeconds - atSeconds",
    seenBy: { file: "test/platform/SignedMessage.test.ts", test: "a message is believed for five minutes" }
  },
  {
    name: "cents-as-euros",
    breaks: "an alarm speaks of 2500 EUR where 25.00 EUR are meant",
    file: "src/domain/Money.ts",
    find: "digitsOtherThanTwo.get(currency) ?? 2",
    replace: "digitsOtherThanTwo.get(currency) ?? 0",
    seenBy: { file: "test/domain/Domain.test.ts", test: "an amount is written as its currency" }
  },
  {
    name: "a-dead-letter-is-a-warning",
    breaks: "an event that waits for a person is lost among the warnings of events that are tried again",
    file: "src/outbox/holds/RefusalLog.ts",
    find: `outcome === "dead" || outcome === "skipped" ? Effect.logError`,
    replace: `outcome === undefined ? Effect.logError`,
    seenBy: { file: "test/outbox/RefusedEvents.test.ts", test: "each refusal leaves a line in the log" }
  },
  {
    name: "decides-in-silence",
    breaks: "what an operator's decision causes looks in the log like the service's own doing",
    file: "src/operations/DeadLetters.ts",
    find: "changed ? OperatorAudit.log(",
    replace: "changed === undefined ? OperatorAudit.log(",
    seenBy: { file: "test/inbox/DeadLog.test.ts", test: "a failure that is tried again is a warning" }
  },
  {
    name: "replies-as-they-come",
    breaks: "a NUL in a mail server's reply makes the refusal impossible to store, and the mail is tried for ever",
    file: "src/application/mail/SmtpTransport.ts",
    find: "presentable(error.message, maxReasonLength)",
    replace: "error.message",
    seenBy: { file: "test/application/mail/SmtpTransport.test.ts", test: "a reply that no column can hold" }
  }
]
