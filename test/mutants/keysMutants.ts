/** Mistakes at the door: hosts, origins, forms, API keys, rates, and the keys of repeated requests. */
import type { Mutant } from "./mutants.ts"

const hosts = "src/http/access/AllowedHosts.ts"
const crossSite = "src/http/access/CrossSite.ts"
const limits = "src/http/access/RateLimits.ts"
const idempotency = "src/application/Idempotency.ts"
const hostsTest = "test/http/HostsAndOrigins.test.ts"
const keysTest = "test/http/ApiKeys.test.ts"
const limitsTest = "test/http/RateLimits.test.ts"
const repeatedTest = "test/http/Repeated.test.ts"

export const keysMutants: ReadonlyArray<Mutant> = [
  {
    name: "foreign-hosts-served",
    breaks: "a page of another site reaches the service under a name of its own (DNS rebinding)",
    file: hosts,
    find: "named.find((authority) => !isAllowed(authority, request))",
    replace: "named.find(() => false)",
    seenBy: { file: hostsTest, test: "a Host that is not ours is 421" }
  },
  {
    name: "wildcard-as-host",
    breaks: "a page of another site reaches the service as http://0.0.0.0",
    file: hosts,
    find: `["0.0.0.0", "::"].includes(host) ? undefined : hostOf(host)`,
    replace: "hostOf(host)",
    seenBy: { file: hostsTest, test: "an address of the machine is served" }
  },
  {
    name: "target-hides-host",
    breaks: "a request whose target names a host of its own is judged by its Host header alone",
    file: hosts,
    find: "[inTarget, request.headers.host].filter",
    replace: "[request.headers.host].filter",
    seenBy: { file: hostsTest, test: "a target with a host of its own" }
  },
  {
    name: "origin-of-any-port",
    breaks: "another program's page on this machine cancels orders",
    file: hosts,
    find: `origin.port === parseAuthority(request.headers.host ?? "")?.port`,
    replace: "true",
    seenBy: { file: hostsTest, test: "an Origin that is not ours is 403" }
  },
  {
    name: "origin-null",
    breaks: "a page in a sandboxed frame cancels orders",
    file: crossSite,
    find: "authority === undefined || !hosts.isOrigin(authority, request)",
    replace: "authority !== undefined && !hosts.isOrigin(authority, request)",
    seenBy: { file: hostsTest, test: "an Origin that is not ours is 403" }
  },
  {
    name: "cross-site-believed-to-be-ours",
    breaks: "a browser's word that a request comes from another site is not heard",
    file: crossSite,
    find: `if (site === "cross-site") return`,
    replace: `if (site === "nowhere") return`,
    seenBy: { file: hostsTest, test: "a browser that says" }
  },
  {
    name: "empty-form-taken",
    breaks: "a form without fields cancels an order",
    file: crossSite,
    find: "type === undefined && !hasBody(request.headers)",
    replace: "!hasBody(request.headers)",
    seenBy: { file: hostsTest, test: "a body that a form could send" }
  },
  {
    name: "bare-answers",
    breaks: "an answer may be guessed at, framed and kept",
    file: "src/http/access/SecurityHeaders.ts",
    find: "{ ...headers, ...named }",
    replace: "{ ...named }",
    seenBy: { file: hostsTest, test: "every answer forbids browsers" }
  },
  {
    name: "overrules-a-header-set-before",
    breaks: "a handler that sets one of the headers by itself is overruled",
    file: "src/http/access/SecurityHeaders.ts",
    find: "delete all[set]",
    replace: "void 0",
    seenBy: { file: "test/http/SecurityHeaders.test.ts", test: "with one that was set before" }
  },
  {
    name: "bare-parser",
    breaks: "an answer of the parser may be guessed at, framed and kept",
    file: "src/http/InvalidHttp.ts",
    find: "`${SecurityHeaders.lines}Content-Length",
    replace: "`Content-Length",
    seenBy: { file: hostsTest, test: "every answer forbids browsers" }
  },
  {
    name: "upgrades",
    breaks: "a request that asks for another protocol goes around the headers of every answer",
    file: "src/http/HttpServer.ts",
    find: "shouldUpgradeCallback: () => false",
    replace: "shouldUpgradeCallback: () => true",
    seenBy: { file: hostsTest, test: "every answer forbids browsers" }
  },
  {
    name: "any-inline-script",
    breaks: "the documentation runs whatever script comes to stand in its page",
    file: "src/http/Docs.ts",
    find: '`script-src ${hashesOf(html, "script")}`',
    replace: `"script-src 'unsafe-inline'"`,
    seenBy: { file: hostsTest, test: "the documentation runs its own script" }
  },
  {
    name: "documentation-of-two-megabytes",
    breaks: "whoever fetches the documentation in masses keeps the process writing",
    file: "src/http/Docs.ts",
    find: "gzipSync(html)",
    replace: "gzipSync(html, { level: 0 })",
    seenBy: { file: hostsTest, test: "the documentation is sent compressed" }
  },
  {
    name: "any-key",
    breaks: "any text is taken for an API key",
    file: "src/http/access/ApiKeys.ts",
    find: "timingSafeEqual(digest, entry.digest)",
    replace: "digest.length === entry.digest.length",
    seenBy: { file: keysTest, test: "every route needs a key" }
  },
  {
    name: "customers-operate",
    breaks: "a customer's key reads reports, tasks and metrics",
    file: "src/http/access/Access.ts",
    find: "/^\\/(?:orders|payments)(?:\\/|$)/.test(route)",
    replace: "route !== undefined",
    seenBy: { file: keysTest, test: "a customer's key reaches" }
  },
  {
    name: "one-owner-of-keys",
    breaks: "a caller finds the answers of another one by its idempotency keys",
    file: "src/http/Handlers.ts",
    find: `caller: name, method: "POST"`,
    replace: `caller: name.slice(0, 0), method: "POST"`,
    seenBy: { file: keysTest, test: "an Idempotency-Key belongs to its caller" }
  },
  {
    name: "nameless-log",
    breaks: "nobody can tell from the log who sent a request",
    file: "src/http/access/Access.ts",
    find: ", caller: caller.name }",
    replace: " }",
    seenBy: { file: keysTest, test: "the log names the caller" }
  },
  {
    name: "guesses-are-free",
    breaks: "an address may guess API keys without end",
    file: "src/http/access/Access.ts",
    find: `limits.address(request.socket.remoteAddress ?? "")`,
    replace: `Effect.as(limits.address(request.socket.remoteAddress ?? "").pipe(Effect.ignore), undefined)`,
    seenBy: { file: keysTest, test: "a caller who asks too often" }
  },
  {
    name: "one-bucket",
    breaks: "a caller who asks too often takes the service from all others",
    file: limits,
    find: "take(`key ${name}`, ",
    replace: 'take("key", ',
    seenBy: { file: limitsTest, test: "a bucket is full at first" }
  },
  {
    name: "buckets-by-wall-clock",
    breaks: "a wall clock that is set back leaves everybody without requests",
    file: limits,
    find: "value: () => Monotonic.millisUnsafe(clock)",
    replace: "value: () => clock.currentTimeMillisUnsafe()",
    seenBy: { file: limitsTest, test: "a wall clock that is set back" }
  },
  {
    name: "bucket-for-each-address",
    breaks: "an attacker with many addresses fills the memory",
    file: limits,
    find: "take(`address ${bucketOf(address)}`",
    replace: "take(`address ${address}`",
    seenBy: { file: limitsTest, test: "a million addresses" }
  },
  {
    name: "open-to-all-machines",
    breaks: "a service that other machines can reach starts without keys",
    file: "src/Config.ts",
    find: "!isLoopback(config.host) && config.apiKeys === undefined",
    replace: "false && config.apiKeys === undefined",
    seenBy: { file: "test/main/Hosts.test.ts", test: "a HOST that other machines can reach" }
  },
  {
    name: "refund-answered-anew",
    breaks: "who repeats a refund whose answer was lost hears 409 instead of the answer",
    file: idempotency,
    find: `    case "Answered":
      return key.answer`,
    replace: `    case "Answered":
      return yield* work`,
    seenBy: { file: repeatedTest, test: "a refund that is repeated" }
  },
  {
    name: "answer-without-payment",
    breaks: "a repeated refund gets its answer without the Location",
    file: idempotency,
    find: "payment_id = ${answer.paymentId ?? null}::uuid",
    replace: "payment_id = NULL::uuid",
    seenBy: { file: repeatedTest, test: "a refund that is repeated" }
  },
  {
    name: "any-body-refunds-all",
    breaks: "who asks for a part of the amount back gets all of it",
    file: "src/http/Handlers.ts",
    find: "Effect.andThen(Body.none, key === undefined",
    replace: "Effect.andThen(Effect.void, key === undefined",
    seenBy: { file: repeatedTest, test: "a refund or cancellation with a body is refused" }
  },
  {
    name: "refund-key-forgotten",
    breaks: "the key of a refund is forgotten while the money is on its way back",
    file: idempotency,
    find: "p.id IN (k.subject_id, k.payment_id)",
    replace: "p.id = k.subject_id",
    seenBy: { file: "test/application/KeyRetention.test.ts", test: "an old key of a refund" }
  }
]
