/**
 * Draws requests for the endpoints of an OpenAPI document. Half of them are valid, so that orders come to be and are paid; a third is
 * nearly valid, which reaches the checks behind the first; the rest is hostile.
 */
import { Arbitrary, Effect, type JsonSchema, Schema, SchemaRepresentation } from "effect"
import { randomUUID } from "node:crypto"
import type { ApiDocument, Endpoint, JsonSchema as AnySchema, Parameter } from "../support/ApiDocument.ts"
import type { Dice } from "./Dice.ts"
import { bytesOf, type FuzzRequest, headerValue } from "./FuzzRequest.ts"
import * as Hostile from "./HostileValues.ts"
import * as Operator from "./Operator.ts"
import type { Outcome } from "./Wire.ts"

/**
 * Values that the document can't tell: a currency is more than three letters, and the sandbox captures and declines by the payment's method.
 * A type of report that is known here is never drawn together with a payment that exists: a gateway that lies is not the service's mistake.
 */
const words: Readonly<Record<string, ReadonlyArray<unknown>>> = {
  currency: ["EUR", "EUR", "USD", "JPY"],
  customerId: ["customer-1", "customer-2", "c\u00fcstomer/3"],
  paymentMethod: [
    "pm_ok",
    "pm_ok",
    "pm_ok",
    "pm_declined",
    "pm_slow",
    "pm_timeout_then_captured",
    "pm_timeout_then_nothing",
    "pm_flaky"
  ],
  sku: ["book", "pen", "\u{1f986}"],
  quantity: [1, 2, 1_000],
  unitAmountMinor: [1, 250, 99_999],
  from: ["2026-01-01", new Date().toISOString().slice(0, 10)],
  to: ["2026-12-31", new Date().toISOString().slice(0, 10)],
  key: ["01890a5d-ac96-774b-bcce-b302099a8057"],
  type: ["charge.captured", "charge.declined", "refund.made", "charge.disputed", "x"]
}

/** What makes orders and moves money is asked more often than what only reads. */
const weights: Readonly<Record<string, number>> = {
  "POST /orders": 14,
  "POST /orders/{id}/pay": 14,
  "POST /orders/{id}/cancel": 6,
  "POST /orders/{id}/refund": 8,
  "POST /webhooks/gateway": 6
}

/** How many ids and keys of each kind are kept: enough to meet old ones, and few enough to meet the same one at the same time. */
const poolSize = 60
/** Samples that are drawn from a schema at once. */
const deckSize = 100
/** Arrays of the longest length that is allowed are megabytes of work: now and then. */
const shareOfLongest = 0.01
const webhookPath = "/webhooks/gateway"

export interface Requests {
  readonly next: () => FuzzRequest
  /** Takes ids from the answer to a request, for requests to come. */
  readonly learn: (request: FuzzRequest, outcome: Outcome) => void
}

export const make = (document: ApiDocument, dice: Dice): Requests => {
  const ids = new Map<string, Array<string>>()
  const keys: Array<string> = []
  const remember = (list: Array<string>, value: string) => {
    list.push(value)
    if (list.length > poolSize) list.splice(dice.int(list.length), 1)
  }
  const learnId = (pool: string, id: string) => {
    const list = ids.get(pool) ?? []
    ids.set(pool, list)
    remember(list, id)
  }
  const samplers = new Map<AnySchema, () => unknown>()
  /** Values that the schema allows, by Effect's Arbitrary. */
  const sample = (schema: AnySchema): unknown => {
    const known = samplers.get(schema)
    if (known !== undefined) return known()
    const { $defs, ...root } = document.standalone(schema)
    const imported = SchemaRepresentation.fromJsonSchemaDocument(
      { dialect: "draft-2020-12", schema: root, definitions: $defs as JsonSchema.Definitions },
      { patterns: "apply" }
    )
    const arbitrary = Arbitrary.schema(Schema.make<Schema.Codec<unknown>>(imported.ast))
    let deck: ReadonlyArray<unknown> = []
    let drawn = 0
    const draw = () => {
      if (drawn % deckSize === 0)
        deck = Effect.runSync(Arbitrary.sampleEffect(arbitrary, { count: deckSize, size: 3, seed: dice.int(2 ** 31) }))
      return deck[drawn++ % deckSize]
    }
    samplers.set(schema, draw)
    return draw()
  }

  const boundaries = new Map<AnySchema, ReadonlyArray<unknown>>()
  const hostileFor = (schema: AnySchema): unknown => {
    const known = boundaries.get(schema) ?? Hostile.boundariesOf(document.standalone(schema))
    boundaries.set(schema, known)
    return Hostile.hostileValue(dice, known)
  }

  /** With words of the domain where the schema allows any text. */
  const worded = (value: unknown): unknown => {
    if (Array.isArray(value)) {
      const all = value.map(worded)
      return all.length > 0 && dice.chance(shareOfLongest) ? Array.from({ length: 1_000 }, () => all[0]) : all
    }
    if (typeof value !== "object" || value === null) return value
    return Object.fromEntries(
      Object.entries(value).map(([key, inner]) => {
        const known = Object.hasOwn(words, key) ? words[key] : undefined
        return [key, known !== undefined && dice.chance(0.9) ? dice.pick(known) : worded(inner)]
      })
    )
  }

  const idFor = (endpoint: string, schema: AnySchema): string => {
    const pool = Operator.isAdmin(endpoint) ? Operator.poolOf(endpoint) : endpoint.split("/")[1]!
    const known = pool === undefined ? [] : (ids.get(pool) ?? [])
    if (known.length === 0 || dice.chance(0.1)) return String(sample(schema))
    // A new order can still be paid: half of the time one of the last three.
    return dice.chance(0.5) ? dice.pick(known.slice(-3)) : dice.pick(known)
  }

  const valueFor = (endpoint: Endpoint, parameter: Parameter): string => {
    if (parameter.in === "path" || parameter.name === "cursor") {
      return Operator.nameFor(dice, parameter.name) ?? idFor(endpoint.path, parameter.schema)
    }
    if (parameter.name !== "idempotency-key") return String(sample(parameter.schema))
    const key = dice.chance(0.8) ? randomUUID() : String(sample(parameter.schema))
    if (keys.length > 0 && dice.chance(0.3)) return dice.pick(keys)
    remember(keys, key)
    return key
  }

  const valid = (endpoint: Endpoint): FuzzRequest => {
    const { body, parameters } = endpoint
    const given = parameters.filter(({ required }) => required === true || dice.chance(0.4))
    const of = (part: Parameter["in"]) =>
      given
        .filter((parameter) => parameter.in === part)
        .map((parameter) => [parameter.name, valueFor(endpoint, parameter)] as const)
    const path = of("path").reduce(
      (text, [name, value]) => text.replace(`{${name}}`, encodeURIComponent(value)),
      endpoint.path
    )
    const query = new URLSearchParams(Object.fromEntries(of("query"))).toString()
    return {
      method: endpoint.method,
      endpoint: endpoint.path,
      target: query === "" ? path : `${path}?${query}`,
      headers: [
        ...(body === undefined ? [] : [["content-type", "application/json"] as const]),
        ...(Operator.isAdmin(endpoint.path) ? [["authorization", `Bearer ${Operator.token}`] as const] : []),
        ...of("header").map(([name, value]) => [name, headerValue(value)] as const)
      ],
      body: body === undefined ? undefined : { _tag: "Json", value: worded(sample(body)) },
      isSigned: endpoint.path === webhookPath && dice.chance(0.9)
    }
  }

  /** One place of the value is dropped, renamed, added or replaced. */
  const mutated = (value: unknown, schema: AnySchema): unknown => {
    if (typeof value !== "object" || value === null || dice.chance(0.1)) return hostileFor(schema)
    const index = dice.int(Array.isArray(value) ? value.length : Object.keys(value).length)
    if (Array.isArray(value)) {
      if (value.length === 0 || dice.chance(0.2)) return [...value, hostileFor(schema)]
      return dice.chance(0.1) ? value.toSpliced(index, 1) : value.with(index, mutated(value[index], schema))
    }
    const entries = Object.entries(value)
    const entry = entries[index]
    if (entry === undefined || dice.chance(0.15)) {
      return Object.fromEntries([...entries, [Hostile.hostileText(dice), hostileFor(schema)]])
    }
    if (dice.chance(0.15)) return Object.fromEntries(entries.toSpliced(index, 1))
    return Object.fromEntries(entries.with(index, [entry[0], mutated(entry[1], schema)]))
  }

  const nearlyValid = (endpoint: Endpoint, request: FuzzRequest): FuzzRequest => {
    const { body, headers, target } = request
    const change = dice.int(10)
    if (body?._tag === "Json" && change < 6) {
      return { ...request, body: { _tag: "Json", value: mutated(body.value, endpoint.body ?? {}) } }
    }
    if (change === 6 && headers.length > 0)
      return { ...request, headers: headers.toSpliced(dice.int(headers.length), 1) }
    if (change === 7)
      return { ...request, method: dice.pick(["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE"]) }
    if (change === 8) return { ...request, target: target.split("?")[0] + "?" + dice.pick(Hostile.hostileQueries) }
    const segments = target.split("/")
    return {
      ...request,
      target: segments.with(1 + dice.int(segments.length - 1), dice.pick(Hostile.hostileSegments)).join("/")
    }
  }

  const hostile = (request: FuzzRequest): FuzzRequest => {
    const added = Array.from({ length: 1 + dice.int(2) }, () => Hostile.hostileHeader(dice))
    const names = new Set(added.map(([name]) => name))
    const changed: FuzzRequest = {
      ...request,
      headers: [
        ...request.headers.filter(([name]) => !names.has(name)),
        ...added.map(([name, value]) => [name, headerValue(value)] as const)
      ]
    }
    if (request.body === undefined || dice.chance(0.4)) return changed
    const bytes = Hostile.hostileBody(dice, bytesOf(request.body).toString())
    return { ...(dice.chance(0.5) ? changed : request), body: { _tag: "Raw", bytes } }
  }

  /** Outside of the document. */
  const elsewhere = (): FuzzRequest => ({
    method: dice.pick(["GET", "GET", "GET", "POST", "DELETE", "HEAD"]),
    endpoint: "elsewhere",
    target: dice.pick(Hostile.otherPaths),
    headers: dice.chance(0.3)
      ? [Hostile.hostileHeader(dice)].map(([name, value]) => [name, headerValue(value)] as const)
      : [],
    body: undefined,
    isSigned: false
  })

  const weighted = document.endpoints
    .filter(({ path }) => !Operator.isEndless(path))
    .flatMap((endpoint) => Array.from({ length: weights[`${endpoint.method} ${endpoint.path}`] ?? 1 }, () => endpoint))

  return {
    next: () => {
      if (dice.chance(0.03)) return elsewhere()
      const endpoint = dice.pick(weighted)
      const request = valid(endpoint)
      const level = dice.int(100)
      return level < 55 ? request : level < 85 ? nearlyValid(endpoint, request) : hostile(request)
    },
    learn: ({ endpoint, method }, outcome) => {
      if (outcome._tag !== "Answer" || outcome.status >= 300) return
      if (method === "GET" && Operator.isAdmin(endpoint)) {
        const pool = Operator.poolOf(endpoint) ?? ""
        for (const id of Operator.idsIn(outcome.text)) learnId(pool, id)
      }
      const location = /^\/([^/]+)\/([^/]+)$/.exec(outcome.headers.location ?? "")
      if (location === null) return
      const [, kind, id] = location
      for (const one of kind === "reports" ? ["reports", "tasks"] : [kind!]) learnId(one, id!)
    }
  }
}
