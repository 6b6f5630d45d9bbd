/** Series of a metric, for code that runs for each request or event. */
import { Metric } from "effect"

/**
 * The series of `metric` with these labels, by the labels' values in their order. Each is made once: making it anew costs more than its update.
 * The values must come from a bounded set, as in any metric.
 */
export const seriesOf = <Input, State>(metric: Metric.Metric<Input, State>, labels: ReadonlyArray<string>) => {
  const made = new Map<string, Metric.Metric<Input, State>>()
  return (...values: ReadonlyArray<string>): Metric.Metric<Input, State> => {
    const key = values.join("\n")
    const known = made.get(key)
    if (known !== undefined) return known
    const attributes = Object.fromEntries(labels.map((label, index) => [label, values[index] ?? ""]))
    const series = Metric.withAttributes(metric, attributes)
    made.set(key, series)
    return series
  }
}
