/** Mistakes of one line in what operators see of mail, and in the retry of many. */
import type { Mutant } from "./mutants.ts"

const file = "src/application/mail/MailReport.ts"
const tests = "test/http/AdminMail.test.ts"

export const mailMutants: ReadonlyArray<Mutant> = [
  {
    name: "another-mail-of-one-event",
    breaks: "a mail whose task was lost comes as a second mail, and no reader knows that it is a copy",
    file: "src/application/tasks/Email.ts",
    find: "${idempotencyKey ?? taskId}@",
    replace: "${taskId}@",
    seenBy: { file: "test/application/mail/Email.test.ts", test: "a task that was lost" }
  },
  {
    name: "sends-every-mail-again",
    breaks: "a retry of one cause sends all dead mail again",
    file,
    find: "failedSo(sql, errorSql, cause)",
    replace: "sql`TRUE`",
    seenBy: { file: tests, test: "dead mail is grouped by cause, and sent again all at once" }
  },
  {
    name: "hides-mail-behind-a-pause",
    breaks: "mail that waits behind a pause is in no list and no count",
    file,
    find: "m.status IS DISTINCT FROM 'sent'`",
    replace: "m.status <> 'sent'`",
    seenBy: { file: tests, test: "mail that no worker has begun is listed and counted as waiting" }
  }
]
