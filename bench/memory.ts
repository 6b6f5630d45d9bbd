/**
 * `bench memory`: the peak resident memory of a process that only drains a backlog of a million events, compared with the memory before.
 * The rows are made inside Postgres, so that the bench itself needs no memory for them.
 */
import { Effect } from "effect"
import { whole } from "./drain.ts"

const megabytes = (bytes: number) => Math.round(bytes / 2 ** 20)

export const memory = Effect.fnUntraced(function* ({ events }: { readonly events: number }) {
  const before = megabytes(process.memoryUsage.rss())
  const block = yield* whole(events, true)
  return {
    events: block.events,
    megabytesBefore: before,
    // In kilobytes on each platform, although Node's documentation says otherwise.
    megabytesAtMost: megabytes(process.resourceUsage().maxRSS * 1_024),
    eventsPerSecond: Math.round(block.events / block.seconds),
    nodeMicrosPerEvent: (block.cpu.node / block.events) * 1e6
  }
})

export const print = (result: Effect.Success<ReturnType<typeof memory>>): string =>
  `${result.events} events drained: at most ${result.megabytesAtMost} MB resident (${result.megabytesBefore} MB before), ` +
  `${result.eventsPerSecond} events/s, ${result.nodeMicrosPerEvent.toFixed(1)} µs of Node each`
