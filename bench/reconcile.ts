/**
 * `bench reconcile`: the command over many orders that agree. The gateway is the sandbox in the same process. The rows are made inside Postgres.
 */
import { Effect, Layer, Redacted } from "effect"
import { SqlClient } from "effect/sql"
import * as SandboxSchema from "../src/sandbox/SandboxSchema.ts"
import * as ManyOrders from "../test/support/ManyOrders.ts"
import { Environment, pool, Side } from "./Environment.ts"
import * as PaidOnceCommand from "./PaidOnceCommand.ts"

interface Report {
  readonly differences: number
  readonly compared: ReadonlyArray<{ readonly name: string; readonly rows: number }>
  readonly notCompared: ReadonlyArray<unknown>
}

export const reconcile = Effect.fnUntraced(function* ({ orders }: { readonly orders: number }) {
  const { databaseUrl } = yield* Environment
  const sql = yield* Side
  yield* Effect.provide(SandboxSchema.migrate, pool)
  yield* Effect.provide(ManyOrders.fill(orders), Layer.succeed(SqlClient.SqlClient, sql))
  const { megabytesAtMost, out, seconds } = yield* PaidOnceCommand.run(["reconcile"], {
    DATABASE_URL: Redacted.value(databaseUrl)
  })
  return { orders, seconds, megabytesAtMost, ...(out as Report) }
})

export const print = ({
  compared,
  differences,
  megabytesAtMost,
  orders,
  seconds
}: Effect.Success<ReturnType<typeof reconcile>>): string =>
  `${orders} orders in ${seconds.toFixed(1)} s (${Math.round(orders / seconds)}/s), at most ${megabytesAtMost} MB resident, ${differences} differences; ` +
  compared.map(({ name, rows }) => `${name} ${rows}`).join(", ")
