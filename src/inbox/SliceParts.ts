/** How a slice that failed is done again, until what is to blame stands alone. Nothing here touches the database. */
import type { ConsumedRecord } from "../brokers/Broker.ts"
import type { Arrival } from "./Arrival.ts"
import type { Failure, Failures } from "./SlicePlan.ts"

/** Records of a slice that are applied in one transaction. */
export interface Part {
  readonly arrivals: ReadonlyArray<Arrival>
  readonly failures: Failures
}

export const whole = (arrivals: ReadonlyArray<Arrival>): Part => ({ arrivals, failures: new Map() })

/** Each of its records by itself, in order. */
export const alone = ({ arrivals, failures }: Part): ReadonlyArray<Part> =>
  arrivals.map((arrival) => ({ arrivals: [arrival], failures }))

/**
 * The parts in which what failed is done again, in order: an event must not overtake an earlier one of its aggregate. What stands
 * alone is held.
 *
 * The event at which it failed is a suspect only: one before it may have broken the transaction, or used up the time. Only a failure that no
 * other try can change is taken at its word. Where there is no suspect, halves would each take the whole time again: then all go alone.
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
    at >= 0 && failure.isFinal
      ? [
          { arrivals: arrivals.slice(0, at + 1), failures: held(arrivals[at]!.record) },
          ...cut(at + 1, arrivals.length).slice(1)
        ]
      : at >= 0
        ? cut(at, at + 1, arrivals.length)
        : isTimeout
          ? alone({ arrivals, failures })
          : cut(Math.ceil(arrivals.length / 2), arrivals.length)
  return parts.filter((part) => part.arrivals.length > 0)
}
