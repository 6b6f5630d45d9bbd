/** The options of a new task, and their bounds. */
import { priorities } from "./TaskType.ts"

/** When and how a task is to be run. */
export interface EnqueueOptions {
  /** Not before so long from now, or from `executeAt`. */
  readonly delayMillis?: number | undefined
  /** Not before this time; ISO 8601. */
  readonly executeAt?: string | undefined
  /** A whole number from -5 to 5, the larger the sooner; 0 unless said otherwise. */
  readonly priority?: number | undefined
  /**
   * Tasks of one key run one at a time, in the order of their enqueuing. Concurrent transactions have no order, unless a lock that they share
   * gives them one, like that of an aggregate's row. A task waits for all earlier tasks of its key, of any type, that are pending, failed or
   * running. It does not wait for dead or cancelled ones.
   */
  readonly orderingKey?: string | undefined
  /** A type has at most one task with this key, until cleanup deletes the task. */
  readonly idempotencyKey?: string | undefined
}

/** A payload says what to do, and is no place for documents: one with more characters than this is a mistake. */
export const maxPayloadLength = 1_000_000

/** Ten years: a longer delay is a mistaken unit. */
const maxDelayMillis = 10 * 366 * 86_400_000

/** The mistake in the options of a task, or undefined. */
export const mistakeOf = (task: {
  readonly delayMillis: number
  readonly executeAt: string | null
  readonly priority: number
  readonly length: number
}): string | undefined => {
  const { delayMillis, executeAt, length, priority } = task
  if (length > maxPayloadLength) return `its payload has ${length} characters, and ${maxPayloadLength} are allowed`
  if (!Number.isInteger(priority) || priority < priorities.lowest || priority > priorities.highest) {
    return `priority ${priority} is no whole number from ${priorities.lowest} to ${priorities.highest}`
  }
  if (!(delayMillis >= 0 && delayMillis <= maxDelayMillis)) return `a delay of ${delayMillis} ms is none`
  // Postgres accepts more than ISO 8601, for example `infinity`.
  if (executeAt !== null && !/^\d{4}-\d\d-\d\dT.*(?:Z|[+-]\d\d:\d\d)$/.test(executeAt)) {
    return `"${executeAt}" is no time in ISO 8601 with its zone`
  }
  return undefined
}
