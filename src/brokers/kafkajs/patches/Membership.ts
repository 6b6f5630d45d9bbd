/** Repairs of how a kafkajs consumer stops, of how it rejoins its group, and of what it keeps from before. */
import { createRequire } from "node:module"

const require = createRequire(import.meta.url)

/**
 * **Defect.** A kafkajs consumer may be stopped while it recreates its fetchers, because the set of brokers has changed. The new fetchers
 * are told that the consumer does not run and ask again at once, without yielding to the event loop. The process hangs with one core
 * busy. Observed when brokers were killed for minutes: the session that failed by the same cause also requested the stop.
 *
 * **Repair.** The first fetch of a stopped consumer fails, which ends the fetchers and so the stop.
 *
 * Source: `fetch` in kafkajs/src/consumer/runner.js, `start` in fetcher.js and fetchManager.js.
 */
export const endFetchersOfStoppedConsumers = () => {
  interface Runner {
    readonly running: boolean
    fetch: (nodeId: number) => Promise<unknown>
  }
  const { prototype } = require("kafkajs/src/consumer/runner.js") as { readonly prototype: Runner }
  const fetch = prototype.fetch
  prototype.fetch = function (this: Runner, nodeId: number) {
    return this.running ? fetch.call(this, nodeId) : Promise.reject(new Error("this consumer has been stopped"))
  }
}

/** The protocol's UNKNOWN_MEMBER_ID. */
const unknownMemberId = 25

/**
 * **Defect.** A kafkajs consumer that its group has forgotten rejoins. When the rejoin fails, it continues to fetch as if it had joined.
 * Without a member id it sends no heartbeats, so it never learns that it has to join: it reads partitions that other members read, and
 * the group is one member short. Observed when coordinators moved for minutes.
 *
 * **Repair.** A heartbeat without a member id fails with UNKNOWN_MEMBER_ID, as it would at the coordinator, and the consumer rejoins.
 *
 * Source: `scheduleFetchManager` in kafkajs/src/consumer/runner.js, `heartbeat` in consumerGroup.js.
 */
export const rejoinWithoutMemberId = () => {
  interface ConsumerGroup {
    readonly memberId: string | null | undefined
    heartbeat: (options: unknown) => Promise<unknown>
  }
  const { prototype } = require("kafkajs/src/consumer/consumerGroup.js") as { readonly prototype: ConsumerGroup }
  const { createErrorFromCode } = require("kafkajs/src/protocol/error.js") as {
    readonly createErrorFromCode: (code: number) => Error
  }
  const heartbeat = prototype.heartbeat
  prototype.heartbeat = function (this: ConsumerGroup, options: unknown) {
    return this.memberId ? heartbeat.call(this, options) : Promise.reject(createErrorFromCode(unknownMemberId))
  }
}

/**
 * **Defect.** When a partition's leader moves, kafkajs rejoins the group while other fetches are in flight. It takes their batches for ones that follow
 * the offset that the new generation has committed, and skips the records between the two. On three nodes this lost hundreds of records in half a minute.
 *
 * **Repair.** Each generation has its own object for offsets. A batch that was fetched by an older one is dropped. Nothing of it is resolved, so the new
 * generation fetches its records again.
 *
 * Source: `fetch` and `joinAndSync` in kafkajs/src/consumer/consumerGroup.js, `handleBatch` in runner.js.
 */
export const dropBatchesOfOldGenerations = () => {
  interface ConsumerGroup {
    readonly offsetManager: object | null
    fetch: (nodeId: number) => Promise<ReadonlyArray<object>>
  }
  interface Runner {
    readonly consumerGroup: ConsumerGroup
    handleBatch: (batch: object) => Promise<unknown>
  }
  const group = require("kafkajs/src/consumer/consumerGroup.js") as { readonly prototype: ConsumerGroup }
  const runner = require("kafkajs/src/consumer/runner.js") as { readonly prototype: Runner }
  const fetchedBy = new WeakMap<object, object | null>()
  const { fetch } = group.prototype
  group.prototype.fetch = async function (this: ConsumerGroup, nodeId: number) {
    // Before the first wait: a fetch that reads its offsets only after the change is dropped needlessly, and asked for again.
    const { offsetManager } = this
    const batches = await fetch.call(this, nodeId)
    for (const batch of batches) fetchedBy.set(batch, offsetManager)
    return batches
  }
  const { handleBatch } = runner.prototype
  runner.prototype.handleBatch = function (this: Runner, batch: object) {
    return fetchedBy.get(batch) === this.consumerGroup.offsetManager ? handleBatch.call(this, batch) : Promise.resolve()
  }
}
