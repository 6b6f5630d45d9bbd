/** Series of a metric, for code that runs for each request or event. */
import type { Metric } from "effect"

/**
 * The series of a metric with these labels, by the labels' values in their order. `make` makes one with its attributes. Each is made once, with a
 * key of its own: `Metric.withAttributes` makes the key anew for each update. The values must come from a bounded set, as in any metric.
 */
export const seriesOf = <Input, State>(
  make: (attributes: Readonly<Record<string, string>>) => Metric.Metric<Input, State>,
  labels: ReadonlyArray<string>
) => {
  const made = new Map<string, Metric.Metric<Input, State>>()
  return (...values: ReadonlyArray<string>): Metric.Metric<Input, State> => {
    const key = values.join("\n")
    const known = made.get(key)
    if (known !== undefined) return known
    const series = make(Object.fromEntries(labels.map((label, index) => [label, values[index] ?? ""])))
    made.set(key, series)
    return series
  }
}
