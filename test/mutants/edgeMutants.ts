/** Mistakes of one line at the HTTP edge: a bound that somebody forgot, or that counts something else. */
import type { Mutant } from "./mutants.ts"

const admission = "src/http/Admission.ts"
const connections = "src/http/Connections.ts"
const admissionTest = "test/http/Admission.test.ts"
const connectionsTest = "test/http/Connections.test.ts"
const badInput = "test/http/BadInput.test.ts"

export const edgeMutants: ReadonlyArray<Mutant> = [
  {
    name: "list-with-lines",
    breaks: "a page of the list reads all lines of its orders",
    file: "src/application/Orders.ts",
    find: "${selectSummary} ${conditions",
    replace: "${selectView} ${conditions",
    seenBy: { file: "test/http/Http.test.ts", test: "a page of the list reads no lines" }
  },
  {
    name: "json-without-bounds",
    breaks: "an object of 100,000 fields holds the event loop",
    file: "src/http/Body.ts",
    find: "if (exceeded !== undefined) return yield* refuse(exceeded)",
    replace: "",
    seenBy: { file: badInput, test: "a webhook's body and the gateway's" }
  },
  {
    name: "json-bounds-count-strings",
    breaks: "a quote that is escaped ends the string, and its text counts as structure",
    file: "src/http/JsonBounds.ts",
    find: "if (byte === backslash) index++",
    replace: "if (byte === backslash) index += 0",
    seenBy: { file: "test/http/JsonBounds.test.ts", test: "what stands in a string counts nothing" }
  },
  {
    name: "json-bounds-without-commas",
    breaks: "a list has any number of values",
    file: "src/http/JsonBounds.ts",
    find: "case comma:\n        values++",
    replace: "case comma:",
    seenBy: { file: "test/http/JsonBounds.test.ts", test: "a text at its bounds passes" }
  },
  {
    name: "problem-lists-everything",
    breaks: "a problem is as long as the request that it refuses",
    file: "src/http/Problems.ts",
    find: "    .slice(0, maxListedErrors)\n",
    replace: "",
    seenBy: { file: badInput, test: "a problem lists a hundred errors" }
  },
  {
    name: "pointers-that-nobody-reads",
    breaks: "a megabyte of long wrong names holds the event loop for a hundred milliseconds",
    file: "src/http/Problems.ts",
    find: "errors.length < maxListedErrors",
    replace: "true",
    seenBy: { file: badInput, test: "only the errors that a problem lists" }
  },
  {
    name: "problem-repeats-names",
    breaks: "a field's name of a megabyte comes back in the problem",
    file: "src/http/Problems.ts",
    find: "pointer: shorten(error.pointer)",
    replace: "pointer: error.pointer",
    seenBy: { file: badInput, test: "every bad body is 400" }
  },
  {
    name: "limit-in-hexadecimal",
    breaks: "a limit is whatever JavaScript reads as a number",
    file: "src/http/OrdersApi.ts",
    find: "isPattern(/^[1-9]\\d{0,2}$/,",
    replace: "isPattern(/^.+$/,",
    seenBy: { file: badInput, test: "the list refuses unknown parameters" }
  },
  {
    name: "any-number-in-work",
    breaks: "requests take memory without a bound",
    file: admission,
    find: "if (this.inWork.length >= this.#size && !this.#makeRoom(this.inWork, now)) return busy",
    replace: "",
    seenBy: { file: admissionTest, test: "above the limit a request is refused" }
  },
  {
    name: "health-among-the-others",
    breaks: "health is refused while users have taken all places",
    file: admission,
    find: `watchers.get(request.url.split("?", 1)[0]!) ?? users`,
    replace: "users",
    seenBy: { file: admissionTest, test: "above the limit a request is refused" }
  },
  {
    name: "health-in-line",
    breaks: "health waits for a turn behind the users",
    file: admission,
    find: "places === users ? Turn.take(turns, present) : answer",
    replace: "Turn.take(turns, present)",
    seenBy: { file: admissionTest, test: "health answers while every turn is taken" }
  },
  {
    name: "slow-clients-stay",
    breaks: "a few clients that don't read keep all others out",
    file: admission,
    find: " && !this.#makeRoom(this.inWork, now)) return busy",
    replace: ") return busy",
    seenBy: { file: admissionTest, test: "clients that don't read their answers" }
  },
  {
    name: "slow-senders-stay",
    breaks: "a few clients that send their bodies slowly keep all others out",
    file: admission,
    find: "!response.req.complete ? arrivedMillis : ",
    replace: "",
    seenBy: { file: admissionTest, test: "clients that send their bodies slowly" }
  },
  {
    name: "waits-in-its-turn",
    breaks: "eight requests that wait for the gateway stop all others",
    file: "src/platform/Turn.ts",
    find: "turns === undefined\n      ? wait",
    replace: "turns !== null\n      ? wait",
    seenBy: { file: admissionTest, test: "requests that wait for somebody else" }
  },
  {
    name: "span-id-of-a-trace",
    breaks: "nobody can read which span an answer names, where no spans are collected",
    file: "src/platform/Traced.ts",
    find: "hex.slice(-spanIdDigits)",
    replace: "hex",
    seenBy: { file: "test/platform/Traced.test.ts", test: "ids that nobody collects" }
  },
  {
    name: "pays-in-its-turn",
    breaks: "eight payments at a slow gateway stop all requests",
    file: "src/application/PayOrder.ts",
    find: "Turn.aside(Fiber.join(charging))",
    replace: "Fiber.join(charging)",
    seenBy: { file: "test/application/PayOrder.test.ts", test: "a payment that waits for the gateway" }
  },
  {
    name: "any-number-on-a-connection",
    breaks: "a client sends requests without reading an answer, as many as it likes",
    file: connections,
    find: `if (use.underWay.length > maxUnanswered) close(socket, "too many requests")`,
    replace: "",
    seenBy: { file: admissionTest, test: "a connection with too many unanswered" }
  },
  {
    name: "answers-wait-for-ever",
    breaks: "an answer that nobody reads is kept for ever",
    file: connections,
    find: `else if (now - use.unread.sinceMillis > answerTimeoutMillis) close(socket, "answer not read")`,
    replace: "",
    seenBy: { file: connectionsTest, test: "a client that does not read an answer" }
  },
  {
    name: "unfinished-answers-are-cut",
    breaks: "a request loses its connection because its handler takes long",
    file: connections,
    find: "answer === undefined || !answer.writableEnded",
    replace: "answer === undefined",
    seenBy: { file: connectionsTest, test: "a client that does not read an answer" }
  },
  {
    name: "newcomers-are-closed",
    breaks: "idle connections keep health from being asked",
    file: connections,
    find: "if (sinceMillis >= longestMillis) return",
    replace: "if (sinceMillis <= longestMillis) return",
    seenBy: { file: connectionsTest, test: "a connection above the limit takes the place" }
  },
  {
    name: "stop-without-expectations",
    breaks: "a connection whose request asked for 100 Continue counts as idle, and is closed for another one",
    file: connections,
    find: `server.on("checkContinue", begin)`,
    replace: "",
    seenBy: { file: connectionsTest, test: "a connection above the limit takes the place" }
  },
  {
    name: "leavers-keep-their-places",
    breaks: "a client that leaves keeps the places of its requests for good",
    file: connections,
    find: "for (const answering of use.underWay.splice(0)) answered(use, answering)",
    replace: "",
    seenBy: { file: connectionsTest, test: "the end of a connection ends the wait" }
  },
  {
    name: "health-by-its-beginning",
    breaks: "requests for paths that nobody serves take the places of health",
    file: admission,
    find: `watchers.get(request.url.split("?", 1)[0]!)`,
    replace: `(/^\\/(health\\/|metrics)/.test(request.url) ? watchers.get("/metrics") : undefined)`,
    seenBy: { file: admissionTest, test: "only the paths of health and metrics" }
  },
  {
    name: "undeclared-refusals",
    breaks: "a probe gets a 503 whose body the document does not know",
    file: "src/http/OpenApiSpec.ts",
    find: "{ ...problem().content, ...response.content }",
    replace: "response.content ?? {}",
    seenBy: { file: admissionTest, test: "a refusal is as the document says" }
  },
  {
    name: "repeated-headers",
    breaks: "a request names two hosts, and two readers take different ones",
    file: "src/http/SingleHeaders.ts",
    find: "(counts.get(name) ?? 0) > 1",
    replace: "(counts.get(name) ?? 0) > 2",
    seenBy: { file: admissionTest, test: "a request has one Host" }
  },
  {
    name: "service-without-admission",
    breaks: "the service takes any number of requests",
    file: "src/http/HttpServer.ts",
    find: "RequestTrace.serve(server, yield* Access.identifying(around(router.asHttpEffect())))",
    replace: "RequestTrace.serve(server, yield* Access.identifying(router.asHttpEffect()))",
    seenBy: { file: badInput, test: "malformed HTTP is answered with a problem" }
  },
  {
    name: "sandbox-without-admission",
    breaks: "the sandbox gateway beside the service takes any number of requests",
    file: "src/sandbox/GatewayServer.ts",
    find: "server.serve(around(answering(Effect.andThen(admit, router.asHttpEffect()))))",
    replace: "server.serve(answering(Effect.andThen(admit, router.asHttpEffect())))",
    seenBy: { file: badInput, test: "malformed HTTP is answered with a problem" }
  },
  {
    name: "rounded-sums",
    breaks: "a report's total above 2^53 is rounded",
    file: "src/application/tasks/Report.ts",
    find: "coalesce(sum(captured), 0)::text AS captured",
    replace: "coalesce(sum(captured), 0)::float8::numeric::text AS captured",
    seenBy: { file: "test/application/Report.test.ts", test: "totals are exact" }
  },
  {
    name: "report-of-any-length",
    breaks: "a report has as many lines as there are currencies",
    file: "src/application/tasks/Report.ts",
    find: "if (lines.length > maxLines) {",
    replace: "if (false) {",
    seenBy: { file: "test/application/Report.test.ts", test: "a report of more than 10,000 lines" }
  },
  {
    name: "settled-from-the-first-payment-on",
    breaks: "a rule over settled payments has nothing to compare the first one with",
    file: "src/application/PaymentOutcomes.ts",
    find: `if (status !== "charging") yield* Metric.value(settledAs(status))`,
    replace: "yield* Effect.succeed(status)",
    seenBy: { file: "test/e2e/Metrics.test.ts", test: "every metric of the reference is there before" }
  },
  {
    name: "failures-from-the-first-on",
    breaks: "a rule over failed slices does not see a consumer's first failure",
    file: "src/inbox/SliceProgress.ts",
    find: "yield* Metric.value(failedTotal)",
    replace: "",
    seenBy: { file: "test/e2e/Metrics.test.ts", test: "every metric of the reference is there before" }
  },
  {
    name: "timeline-of-any-length",
    breaks: "a timeline has an event for each declined payment",
    file: "src/operations/History.ts",
    find: " AND aggregate_version <= ${after + timelinePage}::int4",
    replace: "",
    seenBy: { file: "test/http/Timeline.test.ts", test: "comes in pages of a hundred versions" }
  }
]
