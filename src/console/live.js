/**
 * What moves: the overview and the samples of the last minutes, over one stream of server-sent events.
 *
 * Tabs of one browser share a stream, since HTTP/1.1 gives a browser six connections to a server: the tab that holds the lock reads, and
 * tells the others. A hidden tab lets go. What the service sends while nobody listens is asked for by the last sample's id.
 *
 * @import { Overview, Sample, Trouble } from "./types.ts"
 */
import { get, session } from "./api.js"
import { makeStore } from "./store.js"

/**
 * @typedef {object} Live
 * @property {"connecting" | "live" | "stale"} connection
 * @property {number} heardAt When the last message came, by `performance.now()`; 0 where none came.
 * @property {Overview | undefined} overview
 * @property {Trouble | undefined} trouble While the service can't read its figures: the overview is an old one.
 * @property {ReadonlyArray<Sample>} samples The oldest first.
 */

/** @type {Live} */
const nothingYet = {
  connection: "connecting",
  heardAt: 0,
  overview: undefined,
  trouble: undefined,
  samples: []
}

/** What the stream has told. */
export const live = makeStore(nothingYet)

/** The service sends an overview at least every two seconds: after three times that, something is wrong. */
const staleMillis = 6_000

/** A service that starts again is found within this time; many consoles do not knock at once. */
const retryMillis = () => 1_000 + Math.random() * 1_000

/** A quarter of an hour at one sample a second: the service keeps no more. */
const maxSamples = 900

/** A person who looks at another tab for a moment finds this one live. */
const hiddenMillis = 5_000

const channel = new BroadcastChannel("paid-once-live")

/** @typedef {{ readonly overview: Overview } | { readonly trouble: Trouble } | { readonly sample: Sample } | { readonly history: ReadonlyArray<Sample> } | { readonly hello: true }} Message */

/**
 * @param {ReadonlyArray<Sample>} known
 * @param {ReadonlyArray<Sample>} more
 */
const merged = (known, more) => {
  const byId = new Map([...known, ...more].map((sample) => [sample.id, sample]))
  return [...byId.values()].toSorted((a, b) => a.id - b.id).slice(-maxSamples)
}

/** @param {Message} message */
const take = (message) => {
  if ("hello" in message) return
  live.update((now) => ({
    connection: "live",
    heardAt: performance.now(),
    overview: "overview" in message ? message.overview : now.overview,
    // The last word counts; a sample is none.
    trouble: "trouble" in message ? message.trouble : "overview" in message ? undefined : now.trouble,
    samples:
      "sample" in message
        ? merged(now.samples, [message.sample])
        : "history" in message
          ? merged(now.samples, message.history)
          : now.samples
  }))
}

/** @param {Message} message */
const tell = (message) => {
  take(message)
  channel.postMessage(message)
}

/**
 * Reads the stream until the signal aborts, again and again.
 *
 * @param {AbortSignal} signal
 */
const read = async (signal) => {
  while (!signal.aborted) {
    await new Promise((ended) => {
      const last = live.get().samples.at(-1)
      const source = new EventSource(last === undefined ? "/admin/stream" : `/admin/stream?after=${last.id}`)
      let heardAt = performance.now()
      const close = () => {
        source.close()
        clearInterval(watch)
        ended(undefined)
      }
      // A connection that died on the way says nothing, for ever.
      const watch = setInterval(() => {
        if (performance.now() - heardAt > staleMillis) close()
      }, 1_000)
      signal.addEventListener("abort", close, { once: true })
      source.addEventListener("error", close)
      for (const name of /** @type {const} */ (["overview", "trouble", "sample"]))
        source.addEventListener(name, ({ data }) => {
          heardAt = performance.now()
          tell(/** @type {Message} */ ({ [name]: JSON.parse(data) }))
        })
      // The service ends the stream, such as before it stops.
      source.addEventListener("bye", close)
    })
    if (signal.aborted) return
    await new Promise((resume) => setTimeout(resume, retryMillis()))
    // An EventSource does not say that it was refused. A call does, and a 401 then shows the form.
    if (!signal.aborted) await get("/admin/session").catch((error) => void (error.status === 401 && session.set(null)))
  }
}

/** @param {AbortSignal} signal */
const readAlone = async (signal) => {
  // Without TLS and away from this machine a browser has no locks: each visible tab reads for itself.
  if (navigator.locks === undefined) return read(signal)
  await navigator.locks.request("paid-once-live", { signal }, () => read(signal)).catch(() => undefined)
}

/** Follows the stream while somebody is signed in and the page is visible. Answers with the end of it. */
export const follow = () => {
  let reading = new AbortController()
  let hideTimer = 0
  const begin = () => {
    reading = new AbortController()
    channel.postMessage({ hello: true })
    void readAlone(reading.signal)
  }
  const onVisibility = () => {
    clearTimeout(hideTimer)
    if (document.visibilityState === "hidden") hideTimer = window.setTimeout(() => reading.abort(), hiddenMillis)
    else if (reading.signal.aborted) begin()
  }
  channel.addEventListener("message", onMessage)
  document.addEventListener("visibilitychange", onVisibility)
  const watch = setInterval(() => {
    const { connection, heardAt } = live.get()
    if (connection === "live" && performance.now() - heardAt > staleMillis)
      live.update((now) => ({ ...now, connection: "stale" }))
  }, 1_000)
  begin()
  return () => {
    reading.abort()
    clearTimeout(hideTimer)
    clearInterval(watch)
    channel.removeEventListener("message", onMessage)
    document.removeEventListener("visibilitychange", onVisibility)
  }
}

/** @param {MessageEvent<Message>} event */
const onMessage = ({ data }) => {
  if (!("hello" in data)) return take(data)
  // A tab that opens gets at once what this one knows, if this one is not behind itself.
  const { connection, overview, samples } = live.get()
  if (connection !== "live" || overview === undefined) return
  channel.postMessage({ overview })
  channel.postMessage({ history: samples })
}
