/** A report of the gateway as its webhook hands it in, without HTTP. */
import { Effect } from "effect"
import { GatewayWebhook } from "../../src/application/GatewayWebhook.ts"

/** Verifies the signature of `text`, and records what it reports. */
export const receive = (signature: string, text: string) =>
  GatewayWebhook.use(({ record, verifier }) =>
    Effect.gen(function* () {
      const verify = yield* verifier(signature)
      yield* verify(Buffer.from(text))
      yield* record(text)
    })
  )
