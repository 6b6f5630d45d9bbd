/** Events before they are written, and the aggregate that they belong to. */

/** The aggregate that events belong to. All of an aggregate's events go to one topic, in order. */
export interface AggregateRef {
  readonly topic: string
  /** At most 500 characters and 1,000 bytes, like the id and an event's type (`Envelope.faultOfName`). */
  readonly aggregateType: string
  readonly aggregateId: string
}

/** An event to be announced. */
export interface NewEvent {
  readonly eventType: string
  readonly schemaVersion: number
  /** Anything that `JSON.stringify` encodes. It is sent as it is encoded here. */
  readonly data: unknown
}

export type NonEmpty<A> = readonly [A, ...ReadonlyArray<A>]
