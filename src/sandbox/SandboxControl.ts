/** An operator's command to the sandbox beside the service, audited. */
import { PgClient } from "@effect/sql-pg"
import { Effect, Layer, Option } from "effect"
import { GatewayBehaviour } from "../http/admin/GatewayBehaviour.ts"
import * as OperatorAudit from "../platform/OperatorAudit.ts"
import { Transaction } from "../platform/Transaction.ts"
import { GatewayServer } from "./GatewayServer.ts"

/** Of the sandbox that runs in this process, if there is one. */
export const layer: Layer.Layer<never, never, PgClient.PgClient> = Layer.effect(
  GatewayBehaviour,
  Effect.gen(function* () {
    const database = yield* PgClient.PgClient
    return Option.map(yield* Effect.serviceOption(GatewayServer), ({ behaviour }) => ({
      get: behaviour.get,
      tell: Effect.fn("SandboxControl.tell")(
        function* (command, operator) {
          const before = yield* behaviour.get
          const after = yield* behaviour.set(command)
          if (JSON.stringify(before) === JSON.stringify(after)) return { ...after, changed: false }
          yield* OperatorAudit.record({
            ...operator,
            action: "set behaviour",
            subject: "sandbox gateway",
            subjectId: "behaviour",
            before,
            after
          })
          const { afterCommit } = yield* Transaction
          yield* afterCommit(OperatorAudit.log(operator, `the sandbox gateway is ${after.mode}`))
          return { ...after, changed: true }
        },
        (effect) => Effect.orDie(Effect.provideService(Transaction.run(effect), PgClient.PgClient, database))
      )
    }))
  })
)
