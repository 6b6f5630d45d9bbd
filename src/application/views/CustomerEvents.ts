/** The events of a customer: those of his orders. The mechanism's search knows aggregates, and no customer. */
import { Context, Effect, Layer, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { EventSearch, type Filter, type FoundPage, type SearchTooWide } from "../../operations/reports/EventSearch.ts"
import type { PageOptions } from "../../operations/reports/ReportSql.ts"
import * as Rows from "../../platform/Rows.ts"

/** Orders of a customer whose events are searched together: a second of work. */
export const orderLimit = 1_000

/** The customer has so many orders that all their events are no answer to a person's question. */
export class CustomerTooLarge extends Schema.TaggedError<CustomerTooLarge>()("CustomerTooLarge", {
  customerId: Schema.String
}) {
  override get message() {
    return `customer ${this.customerId} has more than ${orderLimit} orders: search by the id of one of them`
  }
}

/** As the mechanism's filter, with the customer's id in addition. */
export interface CustomerFilter extends Filter {
  readonly customerId?: string | undefined
}

const orderIds = Rows.all(Schema.Struct({ id: Schema.String }))

export class CustomerEvents extends Context.Service<
  CustomerEvents,
  {
    /** {@link EventSearch.search}, of the customer's orders where one is given. */
    readonly search: (
      filter: CustomerFilter,
      page: PageOptions
    ) => Effect.Effect<FoundPage, SearchTooWide | CustomerTooLarge>
  }
>()("paid-once/application/CustomerEvents") {
  static readonly layer: Layer.Layer<CustomerEvents, never, SqlClient.SqlClient | EventSearch> = Layer.effect(
    CustomerEvents,
    Effect.zipWith(SqlClient.SqlClient, EventSearch, (sql, events) =>
      CustomerEvents.of({
        search: Effect.fn("CustomerEvents.search")(function* ({ customerId, ...filter }, page) {
          if (customerId === undefined) return yield* events.search(filter, page)
          const orders = yield* Effect.orDie(
            orderIds(sql`
              SELECT id::text AS id FROM orders WHERE customer_id = ${customerId} ORDER BY id DESC LIMIT ${orderLimit + 1}`)
          )
          if (orders.length > orderLimit) return yield* new CustomerTooLarge({ customerId })
          const ids = orders.map(({ id }) => id)
          const { aggregateIds } = filter
          return yield* events.search(
            {
              ...filter,
              aggregateIds: aggregateIds === undefined ? ids : ids.filter((id) => aggregateIds.includes(id))
            },
            page
          )
        })
      })
    )
  )
}
