/** How far consumer groups have read, for operators and metrics. Apart from `Broker`: whoever asks need not be able to publish or to consume. */
import { Context, type Effect } from "effect"
import type { BrokerUnavailable, TopicUnavailable } from "./Broker.ts"

/** How far a group has read a partition. */
export interface PartitionProgress {
  readonly partition: number
  /** The offset that the partition's next record gets. */
  readonly end: bigint
  /** The offset after the last record that the group is done with; null where it has committed none. */
  readonly committed: bigint | null
  /** The partition's records after that offset. */
  readonly lag: number
  /** The member that reads the partition for the group now; null where none does. */
  readonly owner: string | null
}

/** See {@link PartitionProgress}. An implementation is right when it passes the contract suite of brokers, test/contracts/Broker.ts. */
export class GroupProgress extends Context.Service<
  GroupProgress,
  {
    /** The topic's partitions in ascending order. A group that the broker does not know has committed nothing. */
    readonly of: (
      group: string,
      topic: string
    ) => Effect.Effect<ReadonlyArray<PartitionProgress>, BrokerUnavailable | TopicUnavailable>
  }
>()("paid-once/brokers/GroupProgress") {}
