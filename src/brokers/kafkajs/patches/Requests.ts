/** Changing one request of kafkajs without changing its broker object for the others. */

/** A request of kafkajs and the parser of its response. */
export interface Exchange<Response> {
  readonly request: { readonly apiVersion: number; readonly encode: () => Promise<unknown> }
  readonly response: Response
}

/** One version of a request, as kafkajs looks it up. */
export type Protocol<Arguments, Response> = (args: Arguments) => Exchange<Response>

/** A view of `broker` for one request, which `change` replaces. All other properties are those of `broker`. */
export const oneRequestWith = <
  Broker extends {
    readonly lookupRequest: (apiKey: number, definition: unknown) => Protocol<Arguments, Response>
  },
  Arguments,
  Response
>(
  broker: Broker,
  change: (exchange: Exchange<Response>) => Exchange<Response>
): Broker =>
  Object.create(broker, {
    lookupRequest: {
      value: (apiKey: number, definition: unknown): Protocol<Arguments, Response> => {
        const protocol = broker.lookupRequest(apiKey, definition)
        return (args) => change(protocol(args))
      }
    }
  }) as Broker
