/** The hops of one event after its commit: lane, broker, consumers, mail. Pure functions over what is stored. */
import { mailHop } from "./JourneyMail.ts"
import { fact, hop, isYoung, pausedHop, pauseOf, type Surroundings, triedAt } from "./JourneyParts.ts"
import { countOf } from "../../platform/Plural.ts"
import type { EventFact } from "./JourneyFacts.ts"
import type { Hop } from "./JourneyView.ts"

const timesOf = (attempts: number | null) => countOf(attempts ?? 0, "time")

/** What keeps the event from being sent: nothing, once it is published. */
const laneState = (event: EventFact, around: Surroundings): Pick<Hop, "state"> & Partial<Hop> => {
  const { facts, laneOwner } = around
  const { attempts, endedAt, eventId, lastError, nextAttemptAt, occurredAt, status, topic } = event
  const decide = { page: "dead-letters", command: `paid-once outbox show ${eventId}` }
  switch (status) {
    case "published":
      return { state: "done" }
    case "dead":
      return {
        state: "dead",
        at: endedAt,
        why: `the broker refused it ${timesOf(attempts)}: ${lastError ?? "no reason is stored"}`,
        frees: "an operator retries or discards it",
        ...decide
      }
    case "discarded":
      return { state: "discarded", at: endedAt, why: "an operator has discarded it: nobody gets it", ...decide }
    case "retrying":
      return {
        state: "retrying",
        why: `the broker refused it ${timesOf(attempts)}: ${lastError ?? "no reason is stored"}`,
        frees: triedAt(nextAttemptAt),
        ...decide
      }
    case "parked": {
      const head = facts.holds.find(({ consumer }) => consumer === null)
      return {
        state: "parked",
        why: `an earlier event of this order was refused: ${head?.lastError ?? "no reason is stored"}`,
        frees: "that event is published, or an operator decides about it",
        page: "dead-letters",
        command: head === undefined ? null : `paid-once outbox show ${head.eventId}`
      }
    }
    case "queued": {
      const pause = pauseOf(around, "topic", topic)
      if (pause !== undefined) {
        return { state: "waiting", ...pausedHop(pause, `paid-once dispatcher resume ${topic}`) }
      }
      if (laneOwner === null) {
        return { state: "waiting", why: "no process owns the lane", frees: "a process with the role dispatcher" }
      }
      if (isYoung(facts.at, occurredAt)) return { state: "now" }
      return {
        state: "waiting",
        why: "it waits for its turn: the broker can't be reached, or events are before it",
        frees: "the dispatcher sends it as soon as the broker takes it"
      }
    }
  }
}

/** The lane and the broker. */
export const sendingHops = (event: EventFact, around: Surroundings, after: string): ReadonlyArray<Hop> => {
  const { lane, laneOwner } = around
  const { attempts, occurredAt, offset, partition, publishedAt, traceId } = event
  const isPublished = event.status === "published"
  return [
    hop({
      id: "lane",
      kind: "lane",
      after,
      title: `Lane ${lane}`,
      at: occurredAt,
      traceId,
      process: isPublished ? null : laneOwner,
      facts: attempts === null || attempts === 0 ? [] : fact("refusals", attempts),
      ...laneState(event, around)
    }),
    isPublished
      ? hop({
          id: "broker",
          kind: "broker",
          after: "lane",
          title: `${event.topic}, partition ${partition}`,
          state: "done",
          at: publishedAt,
          traceId,
          facts: [...fact("partition", partition), ...fact("offset", offset)]
        })
      : hop({
          id: "broker",
          kind: "broker",
          after: "lane",
          title: event.topic,
          state: event.status === "discarded" ? "discarded" : "waiting",
          why: "the event has not left its lane",
          frees: event.status === "discarded" ? null : "the lane sends it"
        })
  ]
}

/** What keeps a consumer from applying a published event that it does not hold. */
const unread = (event: EventFact, consumer: string, around: Surroundings): Pick<Hop, "state"> & Partial<Hop> => {
  const { facts, lags } = around
  const pause = pauseOf(around, "consumer", consumer)
  if (pause !== undefined) {
    return { state: "waiting", ...pausedHop(pause, `paid-once consumers resume ${consumer}`) }
  }
  if (isYoung(facts.at, event.publishedAt)) return { state: "now" }
  const own = lags
    .find((lag) => lag.consumer === consumer)
    ?.partitions.find(({ partition }) => partition === event.partition)
  if (own === undefined) {
    return {
      state: "waiting",
      why: "how far the consumer is, the broker does not tell",
      frees: "the consumer reads it"
    }
  }
  const ahead = BigInt(event.offset ?? "0") - BigInt(own.committed ?? "0")
  if (ahead < 0n)
    return {
      state: "dropped",
      why: "the consumer has read on without it, and nobody has skipped it: it was lost, or retention has dropped its mark"
    }
  if (own.owner === null) {
    return {
      state: "waiting",
      why: `nobody reads partition ${event.partition} for ${consumer}`,
      frees: "a process with the role consumers"
    }
  }
  return {
    state: "waiting",
    process: own.owner,
    why:
      ahead === 0n
        ? "it is the next record that the consumer reads"
        : `the consumer has ${ahead} records to read before it`,
    frees: "the consumer works them off"
  }
}

const consumerState = (event: EventFact, consumer: string, around: Surroundings): Pick<Hop, "state"> & Partial<Hop> => {
  const { applied, facts, skips } = around
  const { eventId, status } = event
  const found = facts.effects.find((effect) => effect.consumer === consumer && effect.eventId === eventId)
  if (found?.state === "applied") return { state: "done", at: found.at }
  if (found === undefined && applied.has(`${consumer} ${eventId}`)) return { state: "done" }
  const skip = skips.find((one) => one.consumer === consumer && one.eventId === eventId)
  if (found === undefined && skip !== undefined) {
    return {
      state: "discarded",
      at: skip.at,
      why: `it had not come, and ${skip.actor} let this consumer go on without it: ${skip.reason}`
    }
  }
  if (found === undefined) {
    if (status === "published") return unread(event, consumer, around)
    const why = "the event is not published"
    return status === "discarded" ? { state: "discarded", why } : { state: "waiting", why, frees: "the lane sends it" }
  }
  const reason = found.lastError ?? "no reason is stored"
  const decide = {
    page: `dead-letters?side=inbox&consumer=${consumer}`,
    command: `paid-once inbox show ${consumer} ${eventId}`
  }
  switch (found.state) {
    case "dead":
      return {
        state: "dead",
        at: found.at,
        why: `it failed ${timesOf(found.attempts)}: ${reason}`,
        frees: "an operator retries, skips or discards it",
        ...decide
      }
    case "discarded":
      return { state: "discarded", at: found.at, why: "an operator has discarded it for this consumer", ...decide }
    case "retrying":
      return {
        state: "retrying",
        at: found.at,
        why: `it failed ${timesOf(found.attempts)}: ${reason}`,
        frees: triedAt(found.nextAttemptAt),
        ...decide
      }
    case "gap":
      return {
        state: "gap",
        at: found.at,
        why: found.lastError ?? "an earlier event of this order has not come",
        frees: "the missing event, or an operator goes on without it",
        ...decide,
        command: `paid-once inbox skip ${consumer} ${eventId}`
      }
    case "parked": {
      const head = facts.holds.find((hold) => hold.consumer === consumer)
      return {
        state: "parked",
        at: found.at,
        why: `an earlier event of this order can't be applied: ${head?.lastError ?? "no reason is stored"}`,
        frees: "that event is applied, or an operator decides about it",
        ...decide,
        ...(head === undefined ? {} : { command: `paid-once inbox show ${consumer} ${head.eventId}` })
      }
    }
  }
}

/** Each consumer, and the mail that one of them asks for. */
export const effectHops = (event: EventFact, around: Surroundings): ReadonlyArray<Hop> =>
  around.consumers.flatMap((consumer) => {
    const effect = hop({
      id: `consumer ${consumer}`,
      kind: "consumer",
      after: "broker",
      title: consumer,
      traceId: event.traceId,
      ...consumerState(event, consumer, around)
    })
    const mail = mailHop(event, effect, around)
    return mail === undefined ? [effect] : [effect, mail]
  })
