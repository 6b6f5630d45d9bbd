/** The mail that an event asks for, as a hop. */
import type { EventFact } from "./JourneyFacts.ts"
import { fact, hop, isYoung, pausedHop, pauseOf, type Surroundings, triedAt } from "./JourneyParts.ts"
import type { Hop } from "./JourneyView.ts"
import { receipts } from "../subscribers/Receipts.ts"
import { emailType } from "../tasks/Email.ts"

/** The events that ask for one. */
const mailed = new Set(["OrderPaid", "OrderRefunded"])

const mailState = (event: EventFact, receipt: Hop, around: Surroundings): Pick<Hop, "state"> & Partial<Hop> => {
  const mail = around.facts.mails.find(({ eventId }) => eventId === event.eventId)
  if (mail === undefined) {
    return receipt.state === "done"
      ? { state: "dropped", why: "cleanup has deleted its task" }
      : receipt.state === "discarded"
        ? { state: "discarded", why: `${receipts.name} never asks for it` }
        : {
            state: "waiting",
            why: `${receipts.name} has not asked for it yet`,
            frees: `${receipts.name} applies the event`
          }
  }
  const { attempts, executeAt, finishedAt, lastError, leasedBy, sentAt, sends, state, status, taskId } = mail
  const known = {
    process: leasedBy,
    facts: [...fact("task", taskId), ...fact("runs", attempts), ...fact("sends", sends)],
    page: "mail",
    command: `paid-once tasks show ${taskId}`
  }
  switch (state) {
    case "completed":
    case "cancelled":
      return status === "sent"
        ? { ...known, state: "done", at: sentAt ?? finishedAt, page: null, command: null }
        : { ...known, state: "discarded", at: finishedAt, why: "an operator has given it up" }
    case "dead":
      return {
        ...known,
        state: "dead",
        at: finishedAt,
        why: `${status === "uncertain" || status === "sending" ? "it may have arrived" : "it was not sent"}: ${lastError ?? "no reason is stored"}`,
        frees: "an operator sends it again, or gives it up",
        page: "mail?status=dead"
      }
    case "processing":
      return { ...known, state: "now" }
    case "pending":
    case "failed": {
      const pause = pauseOf(around, "task type", emailType.name)
      if (pause !== undefined) {
        return { ...known, state: "waiting", ...pausedHop(pause, `paid-once tasks resume ${emailType.name}`) }
      }
      if (state === "pending" && isYoung(around.facts.at, mail.enqueuedAt)) return { ...known, state: "now" }
      return {
        ...known,
        state: state === "failed" ? "retrying" : "waiting",
        why: lastError === null ? "no worker has taken it yet" : `it was not sent: ${lastError}`,
        frees: triedAt(executeAt)
      }
    }
  }
}

/** The hop after the consumer that asks for mails; undefined for every other consumer, and for events without a mail. */
export const mailHop = (event: EventFact, effect: Hop, around: Surroundings): Hop | undefined =>
  effect.title !== receipts.name || !mailed.has(event.type)
    ? undefined
    : hop({
        id: "mail",
        kind: "mail",
        after: effect.id,
        title: "Mail",
        traceId: event.traceId,
        ...mailState(event, effect, around)
      })
