/** Makes a failing request smaller for as long as it still fails. */
import { Clock, Effect } from "effect"
import { bytesOf, type FuzzRequest, sizeOf } from "./FuzzRequest.ts"

/** The request with one thing less, the largest steps first. Not every one is smaller: `shrink` takes only those that are. */
export function* smaller(request: FuzzRequest): Generator<FuzzRequest> {
  const { body, headers, target } = request
  if (body !== undefined) yield { ...request, body: undefined }
  if (request.isSigned) yield { ...request, isSigned: false }
  for (const cut of cuts(headers)) yield { ...request, headers: cut }
  const [path = "", query] = target.split("?", 2)
  if (query !== undefined) {
    yield { ...request, target: path }
    for (const cut of cuts(query.split("&")))
      if (cut.length > 0) yield { ...request, target: `${path}?${cut.join("&")}` }
  }
  for (const [index, segment] of path.split("/").entries()) {
    for (const shorter of shorterTexts(segment)) {
      yield {
        ...request,
        target: [path.split("/").with(index, shorter).join("/"), ...(query === undefined ? [] : [query])].join("?")
      }
    }
  }
  for (const [index, [name, value]] of headers.entries()) {
    for (const shorter of shorterTexts(value)) yield { ...request, headers: headers.with(index, [name, shorter]) }
  }
  if (body?._tag === "Json") {
    for (const value of simpler(body.value)) yield { ...request, body: { _tag: "Json", value } }
  }
  if (body?._tag === "Raw") {
    for (const cut of cuts([...bytesOf(body)])) yield { ...request, body: { _tag: "Raw", bytes: Buffer.from(cut) } }
  }
}

/** A list without its halves, then without its quarters, down to single elements. */
function* cuts<A>(list: ReadonlyArray<A>): Generator<ReadonlyArray<A>> {
  for (let length = Math.ceil(list.length / 2); length >= 1; length = length === 1 ? 0 : Math.ceil(length / 2)) {
    for (let from = 0; from < list.length; from += length) yield list.toSpliced(from, length)
  }
}

/** Not cut byte by byte: half of a text tells as much, in far fewer steps. */
function* shorterTexts(text: string): Generator<string> {
  if (text.length > 1) {
    yield text.slice(0, Math.floor(text.length / 2))
    yield text.slice(Math.ceil(text.length / 2))
  }
  if (text.length > 0) yield text.slice(1)
}

/** A JSON value with one thing less, or one thing simpler. */
function* simpler(value: unknown): Generator<unknown> {
  if (typeof value === "string") {
    if (value !== "") yield ""
    yield* shorterTexts(value)
  } else if (typeof value === "number") {
    if (value !== 0) yield 0
    if (value !== 1 && value !== 0) yield 1
  } else if (Array.isArray(value)) {
    yield* cuts(value)
    for (const [index, element] of value.entries()) {
      for (const one of simpler(element)) yield value.with(index, one)
    }
  } else if (typeof value === "object" && value !== null) {
    const entries = Object.entries(value)
    for (const cut of cuts(entries)) yield Object.fromEntries(cut)
    for (const [index, [key, inner]] of entries.entries()) {
      for (const one of simpler(inner)) yield Object.fromEntries(entries.with(index, [key, one]))
    }
  }
}

/**
 * The smallest request found that still fails, within `maxMillis`. `fails` sends a candidate. Greedy: the first smaller one that fails is
 * the next to be made smaller.
 */
export const shrink = <E, R>(
  request: FuzzRequest,
  fails: (candidate: FuzzRequest) => Effect.Effect<boolean, E, R>,
  maxMillis: number
): Effect.Effect<FuzzRequest, E, R> =>
  Effect.gen(function* () {
    const untilMillis = (yield* Clock.currentTimeMillis) + maxMillis
    let best = request
    let isSmaller = true
    while (isSmaller) {
      isSmaller = false
      const size = sizeOf(best)
      for (const candidate of smaller(best)) {
        if ((yield* Clock.currentTimeMillis) > untilMillis) return best
        if (sizeOf(candidate) < size && (yield* fails(candidate))) {
          best = candidate
          isSmaller = true
          break
        }
      }
    }
    return best
  })
