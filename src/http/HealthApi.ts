/** The group `health`, which every process that listens has. */
import { Effect, Schema } from "effect"
import { HttpServerResponse } from "effect/http"
import { HttpApi, HttpApiEndpoint, HttpApiGroup, OpenApi } from "effect/http-api"
import { HealthReport } from "./Health.ts"
import { RequestProblems } from "./RequestProblems.ts"

const Liveness = Schema.Struct({ status: Schema.Literal("live") })

export const livePath = "/health/live"

/** The answer to {@link livePath}. It is always the same, so it is encoded once. */
export const live = Effect.succeed(HttpServerResponse.jsonUnsafe({ status: "live" } satisfies typeof Liveness.Encoded))

export const HealthGroup = HttpApiGroup.make("health")
  .add(
    HttpApiEndpoint.get("live", livePath, {
      success: Liveness
    }).annotateMerge(OpenApi.annotations({ summary: "Whether the process answers" })),
    HttpApiEndpoint.get("ready", "/health/ready", {
      success: HealthReport,
      error: HealthReport.annotate({ httpApiStatus: 503 })
    }).annotateMerge(
      OpenApi.annotations({
        summary: "Whether the process can serve",
        description:
          "`degraded` still takes orders: events wait in the outbox while the broker is away. `unready` is 503. " +
          "The parts are those of the roles that this process has."
      })
    )
  )
  .annotateMerge(
    OpenApi.annotations({ title: "Health", description: "For orchestrators: without a key, and without a limit." })
  )

/** The API of a process without the role `http`; it answers /metrics, too. It has the name of `Api`, so that both share their handlers. */
export const HealthApi = HttpApi.make("paid-once").add(HealthGroup).middleware(RequestProblems)
