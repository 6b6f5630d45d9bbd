/** The group of the audit. */
import { Schema } from "effect"
import { HttpApi, HttpApiGroup, OpenApi } from "effect/http-api"
import { auditSubjects } from "../../application/views/AuditSubjects.ts"
import { Cursor, Entry } from "../../operations/reports/AuditReport.ts"
import { FilterText, pageOf, pageQuery, reading } from "./AdminParts.ts"

const text = Schema.optionalKey(FilterText)

export const AuditApi = HttpApiGroup.make("adminAudit")
  .add(
    reading("list", "/admin/audit", {
      query: {
        actor: text,
        action: text,
        subject: Schema.optionalKey(Schema.Literals(auditSubjects)),
        subjectId: text,
        ...pageQuery(Cursor)
      },
      success: pageOf(Entry, "AuditPage"),
      summary: "List operators' decisions, the newest first",
      description: "Who, what, why, and what it was before and after: of commands and of this API alike."
    })
  )
  .annotateEndpoints(HttpApi.QueryParseOptions, { errors: "all", onExcessProperty: "error" })
  .annotateMerge(OpenApi.annotations({ title: "Admin: audit", description: "What operators decided, and why." }))
