/** An event's type as a metric's label: a service has some dozens of types, and each value of a label is a time series for good. */

/** Far above what a service has, and nothing that a metrics store would notice. */
const maxLabels = 200

const known = new Set<string>()

/** The type, for the first so many types of this process; `other` from then on. */
export const eventTypeLabel = (eventType: string): string => {
  if (known.has(eventType)) return eventType
  if (known.size >= maxLabels) return "other"
  known.add(eventType)
  return eventType
}
