/**
 * The mechanism as a few layers in its plain form: complete and correct, without the layers that make it faster, guard it or measure it.
 *
 * **Details**
 *
 * A service provides them from top to bottom: the loops (dispatcher, consumers, workers), the services of its transactions (outbox, tasks),
 * a broker, the database, and `DatabaseSettings`, which name the database. A layer that is left out is a role that this process does not
 * have. `dispatcher` and `consumer` also ask for `Holds`: {@link blocking}, or parking (PlainParking.ts).
 *
 * `examples/minimal-outbox.ts` is a whole service. `src/main` composes the same parts with all their decorators.
 */
import type { PgClient } from "@effect/sql-pg"
import { Layer } from "effect"
import type { SqlClient } from "effect/sql"
import type { Broker } from "../brokers/Broker.ts"
import { ApplySlice } from "../inbox/ApplySlice.ts"
import * as Consumer from "../inbox/Consumer.ts"
import { Holds as InboxHolds } from "../inbox/holds/Holds.ts"
import { Inbox } from "../inbox/Inbox.ts"
import type { Subscriber } from "../inbox/Subscriber.ts"
import { Dispatcher } from "../outbox/Dispatcher.ts"
import { LaneWakeup } from "../outbox/LaneWakeup.ts"
import { Holds as OutboxHolds } from "../outbox/holds/Holds.ts"
import { LaneOwnership } from "../outbox/LaneOwnership.ts"
import { LaneWorkers } from "../outbox/LaneWorkers.ts"
import { PollRequests } from "../outbox/PollRequests.ts"
import { Outbox } from "../outbox/Outbox.ts"
import { Queue } from "../outbox/Queue.ts"
import { Publisher } from "../outbox/Publisher.ts"
import { ControlConnection } from "../platform/ControlConnection.ts"
import { Ids } from "../platform/Ids.ts"
import { Ownership } from "../platform/Ownership.ts"
import { Fibers } from "../platform/Supervised.ts"
import { Wakeups } from "../platform/Wakeups.ts"
import * as Database from "../postgres/Database.ts"
import { mechanism, Migrated, type MigrationSet } from "../postgres/Migrations.ts"

/** Shared by the processes of a service through the database: one pool, the schema, wake-ups, and ownership. */
type Platform = PgClient.PgClient | SqlClient.SqlClient | Ids | Ownership | Wakeups | Fibers

/**
 * The pool, checked and migrated, and all that several processes need to work on one database.
 *
 * Applies the mechanism's migrations, and then those of `own`. Fails where the database would break a guarantee.
 */
export const database = (...own: ReadonlyArray<MigrationSet>) =>
  Ownership.layer.pipe(
    Layer.provideMerge(Wakeups.layer),
    Layer.provideMerge(ControlConnection.layer),
    Layer.provideMerge(Layer.merge(Fibers.layer, Ids.layer)),
    Layer.provideMerge(Layer.provide(Migrated.layer([mechanism, ...own]), Database.layerPatient)),
    Layer.provideMerge(Database.layerChecked)
  )

/** Writes events in the transaction of their aggregate. */
export const outbox: Layer.Layer<Outbox | LaneWakeup, never, Ids | Wakeups> = Layer.provideMerge(
  Outbox.layer,
  LaneWakeup.layer
)

/**
 * Parks nothing. An event that can't go on is tried again for ever, and everything behind it waits until somebody mends the cause:
 *
 * - an event that the broker refuses stops its lane, a 64th of the outbox;
 * - an event that a subscriber can't apply stops its partition of the topic, for this subscriber.
 *
 * Nothing is lost, applied twice or overtaken. A production service provides `PlainParking.outbox` and `PlainParking.inbox` instead: then only the
 * event's own aggregate waits, and an operator can try the event again or discard it.
 */
export const blocking: Layer.Layer<OutboxHolds | InboxHolds> = Layer.merge(
  OutboxHolds.layerBlocking,
  InboxHolds.layerBlocking
)

/** Sends what the outbox has stored: fetch, send, mark. Lanes are shared with the dispatchers of other processes. */
export const dispatcher: Layer.Layer<LaneWorkers, never, Platform | Broker | LaneWakeup | OutboxHolds> =
  LaneWorkers.layer.pipe(
    Layer.provide(Dispatcher.layer),
    Layer.provide(Layer.mergeAll(Queue.layer, Publisher.layer, LaneOwnership.layer, PollRequests.layer))
  )

/** Applies each event of the subscriber's topic once. Partitions are shared with the consumers of other processes. */
export const consumer = <R = never>(
  subscriber: Subscriber<R>
): Layer.Layer<never, never, Platform | Broker | InboxHolds | R> =>
  Consumer.layer(subscriber).pipe(Layer.provide(ApplySlice.layer), Layer.provide(Inbox.layer))
