/** The lab's broker keeps the contract that Kafka and the embedded broker keep. */
import { Effect, Layer } from "effect"
import { brokerContract } from "../contracts/Broker.ts"
import { BrokerHarness } from "../contracts/BrokerHarness.ts"
import { member, ModelGroups, ModelLog } from "./ModelBroker.ts"

const harness = Layer.sync(BrokerHarness, () => {
  const log = new ModelLog()
  const groups = new ModelGroups()
  return {
    member: member(log, groups),
    restartBroker: Effect.gen(function* () {
      log.away = true
      yield* Effect.sleep("20 millis")
      log.away = false
    })
  }
})

brokerContract("ModelBroker", harness)
