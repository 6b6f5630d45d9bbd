/** How a slice that failed is divided, until the event that is to blame stands alone. Nothing here touches the database. */
import type { ConsumedRecord } from "../../brokers/Broker.ts"
import type { Arrival } from "../Arrival.ts"
import type { Failure, Failures } from "../SlicePlan.ts"
import type { Part } from "./Holds.ts"

/** A part for each record, in their order. */
export const oneByOne = ({ arrivals, failures }: Part): ReadonlyArray<Part> =>
  arrivals.map((arrival) => ({ arrivals: [arrival], failures }))

/**
 * The parts of a slice that failed, in their order: an event must not overtake an earlier one of its aggregate. A record that failed alone is
 * held by the part that is returned for it.
 *
 * `suspect` is the event whose handler failed. Another event may be to blame: one before it may have broken the transaction, or used up the
 * time. The suspect is therefore tried alone first. Only a permanent failure, which no other attempt can change, is taken at its word. A part
 * without a suspect is halved. After a timeout each half would take the whole time again, so the records go one by one.
 */
export const divide = (
  { arrivals, failures }: Part,
  suspect: Arrival | undefined,
  { isTimeout, ...failure }: Failure & { readonly isTimeout: boolean }
): ReadonlyArray<Part> => {
  const held = (record: ConsumedRecord): Failures => new Map([...failures, [record, failure]])
  const [first] = arrivals
  if (first === undefined) return []
  if (arrivals.length === 1) return [{ arrivals, failures: held(first.record) }]
  const at = suspect === undefined ? -1 : arrivals.findIndex(({ record }) => record === suspect.record)
  const cut = (...ends: ReadonlyArray<number>) =>
    ends.map((end, index) => ({ arrivals: arrivals.slice(ends[index - 1] ?? 0, end), failures }))
  const parts =
    at >= 0 && failure.isPermanent
      ? [
          { arrivals: arrivals.slice(0, at + 1), failures: held(arrivals[at]!.record) },
          ...cut(at + 1, arrivals.length).slice(1)
        ]
      : at >= 0
        ? cut(at, at + 1, arrivals.length)
        : isTimeout
          ? oneByOne({ arrivals, failures })
          : cut(Math.ceil(arrivals.length / 2), arrivals.length)
  return parts.filter((part) => part.arrivals.length > 0)
}
