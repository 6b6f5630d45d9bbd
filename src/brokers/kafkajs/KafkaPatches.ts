/**
 * The repairs of kafkajs 2.2.4, made from outside to its prototypes: eight defects, and one slow encoder that is replaced. Each function names the
 * defect, its repair, and the source that it concerns. The version of kafkajs is pinned exactly; README.md names the test of each repair.
 */
import { createRequire } from "node:module"
import { boundUnpacking } from "./patches/Compression.ts"
import { reconnectCleanly, stopIdlePolling } from "./patches/Connections.ts"
import {
  dropBatchesOfOldGenerations,
  endFetchersOfStoppedConsumers,
  rejoinWithoutMemberId
} from "./patches/Membership.ts"
import { acceptPartialMetadata, askNextBroker } from "./patches/Metadata.ts"
import { sendEncodedBatches } from "./patches/ProduceRequests.ts"

const require = createRequire(import.meta.url)

/** On kafkajs itself, which a process loads once, even where it loads this module twice. */
const patched = Symbol.for("paid-once/kafkajs/patched")

/** Changes kafkajs for this process, before the first client is made. Another call changes nothing: a patch of a patch would lose answers. */
export const applyPatches = () => {
  const kafkajs = require("kafkajs") as { [patched]?: true }
  if (kafkajs[patched] === true) return
  kafkajs[patched] = true
  stopIdlePolling()
  reconnectCleanly()
  endFetchersOfStoppedConsumers()
  rejoinWithoutMemberId()
  dropBatchesOfOldGenerations()
  acceptPartialMetadata()
  askNextBroker()
  sendEncodedBatches()
  boundUnpacking()
}
