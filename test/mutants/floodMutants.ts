/** Mistakes of one line in what keeps health answering under a flood, and a flood cheap. */
import type { Mutant } from "./mutants.ts"

const admission = "src/http/Admission.ts"
const admissionTest = "test/http/Admission.test.ts"
const health = "src/http/Health.ts"
const healthTest = "test/http/Health.test.ts"
const sharesTest = "test/http/Shares.test.ts"

const webhookTest = "test/http/Webhook.test.ts"

export const floodMutants: ReadonlyArray<Mutant> = [
  {
    name: "anonymous-gateway",
    breaks: "the lines about a signed report say that nobody knows who sent it",
    file: "src/http/Handlers.ts",
    find: `"caller", "gateway"`,
    replace: `"by", "gateway"`,
    seenBy: { file: "test/http/ApiKeys.test.ts", test: "the log names the gateway" }
  },
  {
    name: "one-caller-takes-all",
    breaks: "the payments of one key at a slow gateway take all places",
    file: admission,
    find: "return busyWithYours\n",
    replace: "{}\n",
    seenBy: { file: sharesTest, test: "a key whose payments wait" }
  },
  {
    name: "share-of-the-address",
    breaks: "keys behind one address share what a single key may hold",
    file: admission,
    find: "isProven ? `key ${name}` : ",
    replace: "",
    seenBy: { file: sharesTest, test: "a key whose payments wait" }
  },
  {
    name: "admitted-before-known",
    breaks: "places are given out before it is known to whom",
    file: "src/http/HttpServer.ts",
    find: "yield* Access.identifying(around(router.asHttpEffect()))",
    replace: "around(yield* Access.identifying(router.asHttpEffect()))",
    seenBy: { file: sharesTest, test: "a key whose payments wait" }
  },
  {
    name: "share-for-each-guess",
    breaks: "a stranger takes all places",
    file: admission,
    find: `new Places(maxRequests, name === "service" && keys !== undefined, slow)`,
    replace: "new Places(maxRequests, false, slow)",
    seenBy: { file: sharesTest, test: "requests without a valid key" }
  },
  {
    name: "own-slow-clients-stay",
    breaks: "an address's slow clients keep the rest of it out",
    file: admission,
    find: "own.length >= free && !this.#makeRoom(own, now)",
    replace: "own.length >= free",
    seenBy: { file: sharesTest, test: "slow clients of one address" }
  },
  {
    name: "two-callers-take-all",
    breaks: "two callers with slow clients or payments keep all others out",
    file: admission,
    find: "const free = this.#size - this.inWork.length",
    replace: "const free = this.#size / 2",
    seenBy: { file: sharesTest, test: "two callers that take all they get" }
  },
  {
    name: "share-of-the-sandbox",
    breaks: "the service waits for charges at the sandbox in half as many requests",
    file: admission,
    find: `name === "service" && keys !== undefined`,
    replace: "keys !== undefined",
    seenBy: { file: sharesTest, test: "the sandbox has one caller" }
  },
  {
    name: "share-of-the-machine",
    breaks: "a service for this machine alone takes half as many requests",
    file: admission,
    find: `name === "service" && keys !== undefined`,
    replace: `name === "service"`,
    seenBy: { file: sharesTest, test: "where no keys are configured" }
  },
  {
    name: "metrics-behind-readiness",
    breaks: "while the database hangs, askers of readiness keep a scrape out",
    file: admission,
    find: "watchedPaths.map((path) => [path, new Places(reservedRequests, false, slow)])",
    replace: "[new Places(reservedRequests, false, slow)].flatMap((one) => watchedPaths.map((path) => [path, one]))",
    seenBy: { file: admissionTest, test: "liveness needs no place" }
  },
  {
    name: "liveness-with-a-place",
    breaks: "anybody who asks for readiness often gets the process ended as dead",
    file: admission,
    find: "if (isLiveness(request)) return answer",
    replace: "",
    seenBy: { file: admissionTest, test: "liveness needs no place" }
  },
  {
    name: "liveness-by-its-beginning",
    breaks: "any path below /health/live needs no place",
    file: admission,
    find: "/^\\/health\\/live(\\?|$)/.test(url)",
    replace: "/^\\/health\\/live/.test(url)",
    seenBy: { file: admissionTest, test: "liveness needs no place" }
  },
  {
    name: "a-look-for-each",
    breaks: "each request for readiness runs its queries",
    file: health,
    find: "if (last === undefined || !isShared) last",
    replace: "last",
    seenBy: { file: healthTest, test: "all who ask share one look" }
  },
  {
    name: "looks-at-the-clock-alone",
    breaks: "while the database hangs, each second begins one more look",
    file: health,
    find: "last.looking.pollUnsafe() === undefined || ",
    replace: "",
    seenBy: { file: healthTest, test: "all who ask share one look" }
  },
  {
    name: "readiness-of-before",
    breaks: "a report is never renewed",
    file: health,
    find: "now - last.beganMillis < freshMillis",
    replace: "now >= last.beganMillis",
    seenBy: { file: healthTest, test: "all who ask share one look" }
  },
  {
    name: "the-first-asker-ends-it",
    breaks: "a prober that leaves ends the look for all who wait for it",
    file: health,
    find: "return Fiber.join(last.looking)",
    replace: "return Effect.onInterrupt(Fiber.join(last.looking), () => Fiber.interrupt(last!.looking))",
    seenBy: { file: healthTest, test: "all who ask share one look" }
  },
  {
    name: "silence-with-a-stack",
    breaks: "a part that hangs writes a stack to the log for each look",
    file: health,
    find: "orElse: () => Effect.as(outages.failed(stopped, silence), degraded)",
    replace: "orElse: () => Effect.die(new Error(silence.reason))",
    seenBy: { file: healthTest, test: "a part that does not answer" }
  },
  {
    name: "body-before-signature",
    breaks: "a stranger has the webhook read a body",
    file: "src/http/Handlers.ts",
    find: `const verify = yield* webhook.verifier(headers[signatureHeader] ?? "")
        const bytes = yield* Body.bytes(maxReportBytes)`,
    replace: `const bytes = yield* Body.bytes(maxReportBytes)
        const verify = yield* webhook.verifier(headers[signatureHeader] ?? "")`,
    seenBy: { file: webhookTest, test: "a signature that is missing, malformed or old" }
  },
  {
    name: "reports-without-end",
    breaks: "a stranger has the webhook read and hash whatever is sent",
    file: "src/http/Handlers.ts",
    find: "Body.bytes(maxReportBytes)",
    replace: "Body.bytes(Number.MAX_SAFE_INTEGER)",
    seenBy: { file: webhookTest, test: "a report beyond its limit is refused" }
  },
  {
    name: "json-before-signature",
    breaks: "a stranger's body is scanned and decoded",
    file: "src/http/Handlers.ts",
    find: `yield* verify(bytes)
        const text = yield* Body.textOf(bytes)`,
    replace: `const text = yield* Body.textOf(bytes)
        yield* verify(bytes)`,
    seenBy: { file: webhookTest, test: "a body is hashed before it is read as JSON" }
  },
  {
    name: "turns-in-one-round",
    breaks: "sockets are not read, nor health answered, until no request waits for a turn",
    file: "src/platform/Turn.ts",
    find: "Effect.andThen(round, Effect.provideService(handler, Turn, { turns }))",
    replace: "Effect.provideService(handler, Turn, { turns })",
    seenBy: { file: "test/platform/Turn.test.ts", test: "between two long turns the event loop" }
  },
  {
    name: "last-turn-first",
    breaks: "under load requests overtake those that came before them, which may wait for ever",
    file: "src/platform/Turn.ts",
    find: "waiting.push(",
    replace: "waiting.unshift(",
    seenBy: { file: "test/platform/Turn.test.ts", test: "turns begin in the order in which they came" }
  },
  {
    name: "goes-on-in-one-round",
    breaks: "requests whose bodies have arrived are read one after the other, and nothing in between",
    file: "src/platform/Turn.ts",
    find: "Effect.andThen(turns.take(1), round)",
    replace: "turns.take(1)",
    seenBy: { file: "test/platform/Turn.test.ts", test: "between two long turns the event loop" }
  }
]
