/** Mistakes of one line in the operators' API and the services behind it. */
import type { Mutant } from "./mutants.ts"

const deadLetters = "test/http/AdminDeadLetters.test.ts"
const tasks = "test/http/AdminTasks.test.ts"

export const adminApiMutants: ReadonlyArray<Mutant> = [
  {
    name: "retries-a-due-task-anew",
    breaks: "a second click on a retry is a second decision in the audit",
    file: "src/tasks/Tasks.ts",
    find: "if (before.isDue || before.state",
    replace: "if (before.state",
    seenBy: { file: tasks, test: "a dead task runs anew and is cancelled, once" }
  },
  {
    name: "retries-a-due-event-anew",
    breaks: "a second click on a retry is a second decision in the audit",
    file: "src/operations/InboxDeadLetters.ts",
    find: "if (!isDead && hold.isDue)",
    replace: "if (!isDead && false)",
    seenBy: { file: deadLetters, test: "of equal clicks at once" }
  },
  {
    name: "previews-by-doing-it",
    breaks: "a preview of a bulk decision carries the decision out",
    file: "src/http/admin/AdminAnswers.ts",
    find: "if (preview === true || reason === undefined) {",
    replace: "if (reason === undefined) {",
    seenBy: { file: deadLetters, test: "a preview says what a retry of many would do" }
  },
  {
    name: "retries-every-cause",
    breaks: "a bulk decision about one cause takes all dead letters",
    file: "src/operations/OutboxDeadLetters.ts",
    find: `failedSo(client, "last_error", cause)`,
    replace: "client`TRUE`",
    seenBy: { file: deadLetters, test: "a preview says what a retry of many would do" }
  },
  {
    name: "repeats-an-event-on-the-next-page",
    breaks: "a page begins with the last item of the page before",
    file: "src/operations/reports/InboxReport.ts",
    find: "(e.event_id, e.consumer_name) < (",
    replace: "(e.event_id, e.consumer_name) <= (",
    seenBy: { file: deadLetters, test: "the consumers' dead letters are listed" }
  },
  {
    name: "finds-nothing-for-a-misspelt-name",
    breaks: "a filter with a misspelt name finds nothing, which passes for good news",
    file: "src/http/admin/KnownNames.ts",
    find: "name === undefined || names[kind].includes(name)",
    replace: 'name === undefined || name !== ""',
    seenBy: { file: deadLetters, test: "bad input names every wrong field" }
  },
  {
    name: "shows-secrets",
    breaks: "the settings in force show passwords and tokens",
    file: "src/Variable.ts",
    find: "value: isSecret ? null :",
    replace: "value:",
    seenBy: { file: "test/http/AdminInstallation.test.ts", test: "the settings in force are shown" }
  }
]
