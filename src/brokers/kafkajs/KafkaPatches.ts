/**
 * The repairs of kafkajs 2.2.4, made from outside to its prototypes: seven defects, and one slow encoder that is replaced. Each function names the
 * defect, its repair, and the source that it concerns. The version of kafkajs is pinned exactly; README.md names the test of each repair.
 */
import { boundUnpacking } from "./patches/Compression.ts"
import { reconnectCleanly, stopIdlePolling } from "./patches/Connections.ts"
import { endFetchersOfStoppedConsumers, rejoinWithoutMemberId } from "./patches/Membership.ts"
import { acceptPartialMetadata, askNextBroker } from "./patches/Metadata.ts"
import { sendEncodedBatches } from "./patches/ProduceRequests.ts"

/** Changes kafkajs for this process. Must be called once, before the first client is made. */
export const applyPatches = () => {
  stopIdlePolling()
  reconnectCleanly()
  endFetchersOfStoppedConsumers()
  rejoinWithoutMemberId()
  acceptPartialMetadata()
  askNextBroker()
  sendEncodedBatches()
  boundUnpacking()
}
