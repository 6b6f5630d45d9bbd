/** Repairs of how a kafkajs consumer stops, and of how it rejoins its group. */
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
