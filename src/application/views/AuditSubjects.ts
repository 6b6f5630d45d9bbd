/** The kinds of things that operators decide about, as the audit names them: those of the mechanism, and the service's own. */
export const auditSubjects = [
  "outbox event",
  "inbox event",
  "task",
  "order",
  "payment",
  "mail",
  "topic",
  "consumer",
  "task type",
  "fault point",
  "sandbox gateway",
  "revenue"
] as const
