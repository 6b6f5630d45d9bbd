/** The drills, each in a line. The list and the help load nothing else. */

export const drillNames = ["poison", "oversize", "outage", "lost-ack", "manual", "zombie"] as const
export type DrillName = (typeof drillNames)[number]

/** What each shows. */
export const descriptions: Readonly<Record<DrillName, string>> = {
  poison: "An event that a consumer can't apply is parked, its order is held, and others go on.",
  oversize: "An event that the broker refuses becomes a dead letter, and is sent after a mend.",
  outage: "The broker is away under load: a backlog, nothing burnt, and nothing lost.",
  "lost-ack": "An acknowledgement is lost: the event is sent twice, and applied once.",
  manual: "The gateway gives no clear answer: a person looks, and settles the payment.",
  zombie: "A frozen dispatcher wakes up when its lanes are gone: its late send is dropped."
}
