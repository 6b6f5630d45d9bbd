/** Mistakes in what an operator settles: payments and mail that wait for a person. */
import type { Mutant } from "./mutants.ts"

const findings = "src/application/GatewayFindings.ts"
const settling = "src/application/SettlePayment.ts"
const mail = "src/application/mail/UnsettledMail.ts"
const settleTests = "test/application/SettlePayment.test.ts"
const mailTests = "test/application/mail/UnsettledMail.test.ts"
const databaseTests = "test/operations/OperatorDatabase.test.ts"

export const paymentsMutants: ReadonlyArray<Mutant> = [
  {
    name: "the-operator-knows-better",
    breaks: "a payment that the gateway has captured is settled as declined, and the money belongs to nobody",
    file: findings,
    find: "return named === undefined || named === says",
    replace: "if (named !== undefined) return Result.succeed(named)\n    return named === undefined || named === says",
    seenBy: { file: settleTests, test: "an operator's word against what the gateway has done" }
  },
  {
    name: "nothing-is-a-decline",
    breaks: "a charge that the gateway has forgotten is declined without anybody's word",
    file: findings,
    find: 'words: "the gateway knows of no charge"',
    replace: 'words: "the gateway knows of no charge", ...({ says: "declined" } as object)',
    seenBy: { file: settleTests, test: "nothing at the gateway decides nothing" }
  },
  {
    name: "settles-in-an-outage",
    breaks: "payments are settled by hand in an outage, against what the gateway would have said",
    file: findings,
    find: "!(withoutGateway && named !== undefined)",
    replace: "named === undefined",
    seenBy: { file: settleTests, test: "without an answer of the gateway nothing is settled" }
  },
  {
    name: "another-amount-will-do",
    breaks: "an order of 1.00 EUR is paid by a capture of 0.01 and an operator's word",
    file: findings,
    find: 'says === "another amount" && named === "captured"',
    replace: 'says === "nothing" && named === undefined',
    seenBy: { file: settleTests, test: "a capture of another amount never pays" }
  },
  {
    name: "keeps-a-promised-refund",
    breaks: "a refund that was promised to the customer is taken back by an operator's word",
    file: findings,
    find: 'refundAgeMillis === null ? ["captured", "refunded"] : ["refunded"]',
    replace: '["captured", "refunded"]',
    seenBy: { file: settleTests, test: "a refund that the gateway knows refunds the order" }
  },
  {
    name: "offers-what-is-refused",
    breaks: "a check offers outcomes that a settlement refuses, against what the gateway has done",
    file: settling,
    find: "decide(payment, finding, outcome, true)",
    replace: "decide(payment, { says: 'nothing', words: '' }, outcome, true)",
    seenBy: { file: settleTests, test: "check compares with the gateway in words" }
  },
  {
    name: "settles-by-an-old-answer",
    breaks: "an answer about the charge settles a payment that waits for its refund by now",
    file: settling,
    find: "if (String(nameable(payment)) !== String(nameable(asked))) {",
    replace: "if (false) {",
    seenBy: { file: settleTests, test: "a report that settles the payment while the gateway is asked" }
  },
  {
    name: "settles-without-a-trace",
    breaks: "nobody can tell who has settled a payment, and why",
    file: settling,
    find: "          OperatorAudit.record({",
    replace: "          ((_: unknown) => Effect.void)({",
    seenBy: { file: settleTests, test: "a capture that the gateway knows pays the order" }
  },
  {
    name: "settles-what-is-settled",
    breaks: "a second operator's other word about a settled payment passes for a success",
    file: settling,
    find: 'as === undefined || (as === "captured" ? capturedMinor > 0 : status === as)',
    replace: "true || as === undefined || status === as || capturedMinor > 0",
    seenBy: { file: settleTests, test: "a decline that the gateway knows" }
  },
  {
    name: "a-dispute-never-ends",
    breaks: "a payment whose dispute was won can be settled in SQL alone",
    file: "src/application/Payments.ts",
    find: "OR (${move.to} = 'captured' AND refund_begun_at IS NULL)",
    replace: "OR (${move.to} = 'captured' AND false)",
    seenBy: { file: settleTests, test: "a dispute ends by the operator's word" }
  },
  {
    name: "lists-by-reading-everything",
    breaks: "a list of the payments that wait reads all payments there ever were",
    file: "src/application/views/PaymentReport.ts",
    find: "...(statuses.every((status) => underWay.includes(status)) ? [sql.literal(underWayIds)] : []),",
    replace: "",
    seenBy: { file: "test/application/PaymentReport.test.ts", test: "payments that need a person or are under way" }
  },
  {
    name: "forgets-what-is-given-back",
    breaks: "money that is to be given back after a decline is in no list of what is under way",
    file: "src/application/views/PaymentReport.ts",
    find: "AND state IN ('pending', 'failed')",
    replace: "AND false",
    seenBy: { file: "test/application/PaymentReport.test.ts", test: "payments that need a person or are under way" }
  },
  {
    name: "held-once-more",
    breaks: "a mail whose worker died is not sent by the operator's first retry, and nobody says so",
    file: mail,
    find: 'if (status === "sending") yield* mark(id, "uncertain")',
    replace: "",
    seenBy: { file: mailTests, test: "a mail of unknown outcome is sent again" }
  },
  {
    name: "delivered-and-sent-again",
    breaks: "a mail that was called delivered is sent by its task's next run",
    file: mail,
    find: "yield* tasks.settle(id)",
    replace: "",
    seenBy: { file: mailTests, test: "a mail of unknown outcome that was delivered" }
  },
  {
    name: "decides-under-the-worker",
    breaks: "a mail is called delivered while a worker sends it",
    file: mail,
    find: 'if (task.taskState === "processing") {',
    replace: "if (false) {",
    seenBy: { file: mailTests, test: "only a mail of unknown outcome can be called delivered" }
  },
  {
    name: "the-operators-own-database",
    breaks: "a command in the wrong directory makes an empty database, and says that all is well",
    file: "src/main/Storage.ts",
    find: "\n            EmbeddedPostgres.acquire({ dataDirectory: embeddedDirectory(config), mustExist: true })",
    replace: "\n            EmbeddedPostgres.acquire({ dataDirectory: embeddedDirectory(config) })",
    seenBy: { file: databaseTests, test: "an operator's command makes no embedded database" }
  },
  {
    name: "asks-an-empty-sandbox",
    breaks: "without GATEWAY_URL in the operator's shell an empty sandbox says that nothing was charged",
    file: "src/main/Cashier.ts",
    find: "config.gatewayUrl === undefined ? SandboxSchema.check : Effect.void",
    replace: "config.gatewayUrl === null ? SandboxSchema.check : Effect.void",
    seenBy: { file: databaseTests, test: "without GATEWAY_URL no empty sandbox" }
  }
]
