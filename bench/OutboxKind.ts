/**
 * The outbox that an order's events use, where one process compares several outboxes. Two processes of the same code would differ by 2 %
 * already.
 */

export const outboxKinds = ["ours", "none", "barest"] as const
export type OutboxKind = (typeof outboxKinds)[number]

/** Chosen by the end of the order's random id, so that client and service agree without a message. */
export const outboxKindOf = (orderId: string): OutboxKind =>
  outboxKinds[Number.parseInt(orderId.slice(-4), 16) % outboxKinds.length]!
