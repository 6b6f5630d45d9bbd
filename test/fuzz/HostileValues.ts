/** Values that have broken services before: as JSON, as raw bodies, as headers, as parts of a path. */
import type { JsonSchema } from "../support/ApiDocument.ts"
import type { Dice } from "./Dice.ts"

const texts: ReadonlyArray<string> = [
  ["", " ", "a\u0000b", "\u0000", "\ud800", "x\udc00y", "\uffff", "\u202e", "\ufeff", "é", "e\u0301", "😀"],
  ["__proto__", "constructor", "toString", "hasOwnProperty", "null", "undefined", "true", "NaN", "-1"],
  ["'; DROP TABLE orders; --", "$1", "%s%n", "{{7*7}}", "${7*7}", "../../etc/passwd", "<script>alert(1)</script>"],
  [
    "\r\nx-injected: 1",
    "\t",
    "\u001b[31m",
    "\u007f",
    "\u0085",
    "1e400",
    "0x10",
    "2026-02-30",
    "9999-12-31",
    "0001-01-01",
    "infinity"
  ],
  ["x".repeat(101), "x".repeat(256), "y".repeat(10_000), "\u0001".repeat(300), "🦆".repeat(150), "\ud800".repeat(60)]
].flat()

/** Text that JSON can write, and that Postgres or UTF-8 can't hold: a group of its own, because it gets furthest. */
const unstorable: ReadonlyArray<string> = ["a\u0000b", "\u0000", "\ud800", "x\udc00y"]

const numbers: ReadonlyArray<number> = [
  [0, -0, 1, -1, 0.5, 1e-7, 100_000_000_001, 2 ** 31, 2 ** 53 - 1, 2 ** 53, 1e21, Number.MAX_VALUE, Number.MIN_VALUE]
].flat()

const others: ReadonlyArray<unknown> = [
  null,
  true,
  false,
  [],
  {},
  [[]],
  [null],
  { a: 1 },
  JSON.parse('{"__proto__":{"x":1}}')
]

/** The bounds that the schema gives, and their neighbours, as numbers and as lengths of texts. */
export const boundariesOf = (schema: JsonSchema): ReadonlyArray<unknown> => {
  const found = new Set<number>()
  JSON.stringify(schema, (key, value: unknown) => {
    if (typeof value === "number" && /^(min|max|exclusive)/.test(key)) found.add(value)
    return value
  })
  const near = [...found].flatMap((bound) => [bound - 1, bound, bound + 1])
  return [...near, ...near.filter((length) => length >= 0 && length <= 2_000).map((length) => "b".repeat(length))]
}

export const hostileValue = (dice: Dice, boundaries: ReadonlyArray<unknown>): unknown =>
  dice.chance(0.3) && boundaries.length > 0
    ? dice.pick(boundaries)
    : dice.pick<unknown>(dice.pick([texts, texts, unstorable, numbers, others]))

/** A text for a header, a query or a path. */
export const hostileText = (dice: Dice): string => dice.pick(texts)

const bytes = (...parts: ReadonlyArray<string | number>) =>
  Buffer.concat(parts.map((part) => (typeof part === "number" ? Buffer.from([part]) : Buffer.from(part))))

/** Bodies that no JSON value writes. `json` is the valid one. */
const rawBodies: ReadonlyArray<(json: string, dice: Dice) => Buffer> = [
  (json, dice) => Buffer.from(json.slice(0, dice.int(json.length + 1))),
  (json, dice) => {
    const broken = Buffer.from(json)
    if (broken.length > 0) broken[dice.int(broken.length)] = dice.int(256)
    return broken
  },
  (json) => Buffer.from(json.replace(/\d+/, "1e400")),
  (json) => Buffer.from(json.replace(/\d+/, "-0")),
  (json) => Buffer.from(json.replace(/"(?=[^":]*"[,}])/, '"\\u0000\\ud800')),
  (json) => bytes(0xef, 0xbb, 0xbf, json),
  (json) => Buffer.from(json, "utf16le"),
  (json) => bytes(json, json),
  (json) => bytes(json.slice(0, -1), `,"__proto__":{"x":1}}`),
  (json) => bytes(json.slice(0, -1), `,${json.slice(1)}`),
  (_, dice) => Buffer.from("[".repeat(10 ** (1 + dice.int(5)))),
  (_, dice) => Buffer.from(`${'{"a":'.repeat(10 ** (1 + dice.int(4)))}1${"}".repeat(3)}`),
  (_, dice) =>
    Buffer.from(`{${Array.from({ length: 10 ** (1 + dice.int(4)) }, (_unused, n) => `"k${n}":0`).join(",")}}`),
  (json, dice) => bytes(json, " ".repeat(dice.pick([10, 1_000, 1_048_576, 1_500_000]))),
  () => Buffer.from([0xff, 0xfe, 0x00]),
  () => bytes('{"customerId":"', 0xed, 0xa0, 0x80, '"}'),
  () => Buffer.from("a=1&b=2"),
  () => Buffer.alloc(0)
]

export const hostileBody = (dice: Dice, json: string): Buffer => dice.pick(rawBodies)(json, dice)

/** Headers that a proxy, a browser or an attacker adds. */
const headers: ReadonlyArray<readonly [name: string, values: ReadonlyArray<string>]> = [
  [
    "content-type",
    [
      "text/plain",
      "application/x-www-form-urlencoded",
      "application/json; charset=latin1",
      "multipart/form-data",
      ";;",
      ""
    ]
  ],
  ["content-encoding", ["gzip", "identity", "br, gzip", "x"]],
  ["transfer-encoding", ["chunked"]],
  ["accept", ["text/html", "*/*;q=0", "\u00ff"]],
  ["accept-encoding", ["gzip", "identity;q=0, *;q=0"]],
  ["expect", ["100-continue"]],
  ["range", ["bytes=0-0", "bytes=-1", "x"]],
  ["if-none-match", ["*"]],
  ["if-modified-since", ["never"]],
  ["origin", ["null", "https://evil.example", "x"]],
  ["host", ["evil.example", "", "localhost:99999", "[::1]", "127.0.0.1.nip.io"]],
  ["forwarded", ["for=unknown", 'for="[::1]:x"']],
  ["x-forwarded-for", ["127.0.0.1", "x".repeat(500)]],
  ["x-forwarded-host", ["evil.example"]],
  ["x-forwarded-proto", ["https", "javascript"]],
  ["x-http-method-override", ["DELETE"]],
  ["traceparent", ["00-0-0-0", "00-ffffffffffffffffffffffffffffffff-ffffffffffffffff-ff", "00-zz", "x".repeat(1_000)]],
  ["tracestate", ["a=1", "=,=,", "x".repeat(2_000)]],
  ["b3", ["0", "x-y-z-1", "80f198ee56343ba864fe8b2a57d3eff7-e457b5a2e4d86bd1-1-05e3ac9a4f6e3b90"]],
  ["cookie", ["a=b; c", "=".repeat(1_000)]],
  ["authorization", ["Bearer x", "Basic ::::", "Bearer", "\u00e9"]],
  ["gateway-signature", ["t=1,v1=", `t=${"9".repeat(12)},v1=${"0".repeat(64)}`, "x"]],
  ["connection", ["close", "upgrade", "x"]],
  ["upgrade", ["h2c", "websocket"]],
  ["idempotency-key", ["", "x".repeat(256), "\u0085", "\t", "é".repeat(200)]],
  ["x-filler", ["x".repeat(9_000)]],
  ["constructor", ["1"]],
  ["__proto__", ["1"]]
]

export const hostileHeader = (dice: Dice): readonly [string, string] => {
  const [name, values] = dice.pick(headers)
  return [name, dice.chance(0.2) ? hostileText(dice) : dice.pick(values)]
}

/** Parts of a path, as they are sent. */
export const hostileSegments: ReadonlyArray<string> = [
  [
    "%00",
    "%ff",
    "%E0%A4%A",
    "%",
    "%2f",
    "..",
    ".",
    "%2e%2e",
    "__proto__",
    "constructor",
    "0",
    "-1",
    "null",
    "%F0%9F%98%80",
    "%ED%A0%80"
  ],
  [
    "x".repeat(300),
    "x".repeat(4_000),
    "01890a5d-ac96-774b-bcce-b302099a805",
    "01890A5D-AC96-774B-BCCE-B302099A8057",
    "00000000-0000-0000-0000-000000000000"
  ],
  ["{id}", "*", ":id", "a;b=c", "a%3Bb", "%0d%0ax:1"]
].flat()

/** Queries, as they are sent. */
export const hostileQueries: ReadonlyArray<string> = [
  [
    "limit=0",
    "limit=101",
    "limit=1e400",
    "limit=0x10",
    "limit=-1",
    "limit=1.5",
    "limit=%31",
    "limit=",
    "limit",
    "limit[]=1",
    "limit=1&limit=2"
  ],
  [
    "status=constructor",
    "status=__proto__",
    "status=paid&status=pending",
    "cursor=%00",
    "cursor=x",
    "%00=1",
    "=",
    "&&&",
    "a".repeat(3_000)
  ],
  ["__proto__=1", "constructor=1", "%ff=%ff", "%=%", "cursor=01890a5d-ac96-774b-bcce-b302099a8057&limit=1"]
].flat()

/** Paths that the document does not have. */
export const otherPaths: ReadonlyArray<string> = [
  [
    "/",
    "//",
    "/docs",
    "/metrics",
    "/openapi.json",
    "/favicon.ico",
    "/orders/",
    "/ORDERS",
    "/orders//",
    "/orders/../health/live",
    "*"
  ],
  ["/health", "/admin", "/admin/outbox", "/%2e%2e/%2e%2e/etc/passwd", "/orders%2f", "/.env", "/console", "/__proto__"]
].flat()
