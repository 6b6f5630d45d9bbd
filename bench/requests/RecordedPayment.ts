/** The statements of one payment as the use case ran them, to be run again for other orders. */

export interface Statement {
  readonly sql: string
  /** The name that it is prepared under, where a driver wants one. */
  readonly name?: string
  readonly params: ReadonlyArray<unknown>
}

export interface RecordedPayment {
  readonly statements: ReadonlyArray<Statement>
  readonly orderId: string
  readonly paymentId: string
}

/** The statements of the intent's transaction: the order's lock, the key, the payment, its recovery. The others are the outcome's. */
const intentStatements = 4

const uuid = /^[0-9a-f]{8}-[0-9a-f]{4}-[47][0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}$/

/** The two transactions of a payment of another order. Every other id in their parameters becomes a new one. */
export const transactionsOf = (
  { orderId: recordedId, paymentId, statements }: RecordedPayment,
  orderId: string,
  nextId: () => string
): readonly [intent: ReadonlyArray<Statement>, outcome: ReadonlyArray<Statement>] => {
  const known = new Map([
    [recordedId, orderId],
    [paymentId, nextId()]
  ])
  const replaced = (value: string) =>
    uuid.test(value)
      ? (known.get(value) ?? nextId())
      : [...known].reduce((text, [from, to]) => text.replaceAll(from, to), value)
  const again = statements.map((statement) => ({
    ...statement,
    params: statement.params.map((value) => (typeof value === "string" ? replaced(value) : value))
  }))
  return [again.slice(0, intentStatements), again.slice(intentStatements)]
}
