/** The group of pauses: what an operator has stopped, and lets go on. */
import { Schema } from "effect"
import { HttpApiGroup, OpenApi } from "effect/http-api"
import { Decided } from "../../operations/pauses/PauseDecisions.ts"
import { Pause } from "../../operations/pauses/Pauses.ts"
import { deciding, FilterText, reading, ReasonBody } from "./AdminParts.ts"

const decision = {
  params: { name: FilterText },
  payload: ReasonBody,
  success: Decided.annotate({ identifier: "Paused" })
}

export const PausesApi = HttpApiGroup.make("adminPauses")
  .add(
    reading("list", "/admin/pauses", {
      success: Schema.Struct({ items: Schema.Array(Pause.annotate({ identifier: "Pause" })) }).annotate({
        identifier: "Pauses"
      }),
      summary: "List what is paused"
    }),
    deciding("pauseTopic", "/admin/topics/:name/pause", {
      ...decision,
      summary: "Send no more events to a topic",
      description: "They wait in the queue, in their order. It survives restarts."
    }),
    deciding("resumeTopic", "/admin/topics/:name/resume", { ...decision, summary: "Send to the topic again" }),
    deciding("pauseConsumer", "/admin/consumers/:name/pause", {
      ...decision,
      summary: "Apply no more events",
      description: "They wait in the topic. It survives restarts."
    }),
    deciding("resumeConsumer", "/admin/consumers/:name/resume", { ...decision, summary: "Apply events again" }),
    deciding("pauseTaskType", "/admin/task-types/:name/pause", {
      ...decision,
      summary: "Begin no more tasks of a type",
      description: "Those that run end. It survives restarts."
    }),
    deciding("resumeTaskType", "/admin/task-types/:name/resume", {
      ...decision,
      summary: "Run tasks of the type again"
    })
  )
  .annotateMerge(OpenApi.annotations({ title: "Admin: pauses", description: "Stop something, and let it go on." }))
