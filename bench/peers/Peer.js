/**
 * A process of a peer: `PEER` names its file in `relays`. With `serve` as its argument it is the relay, with `PEER_ROLE=writer` the writer of
 * a load, and otherwise it makes tables and fills them.
 */
import { setTimeout as sleep } from "node:timers/promises"
import { answer } from "../outside/Child.ts"
import { answerWriter } from "../outside/OpenLoop.ts"
import { connect } from "./Connections.js"
import { toEvent } from "./Record.js"

const peer = await import(`./relays/${process.env.PEER}.js`)

const relay = async () => {
  const stop = await peer.relay()
  process.on("SIGTERM", () => {
    // A peer that does not end is no finding of this measurement.
    void Promise.race([stop(), sleep(5_000)]).then(() => process.exit(0))
  })
  process.stdout.write(`${JSON.stringify({ ready: true, url: null })}\n`)
}

const writer = () =>
  answerWriter(async () => {
    const client = await connect()
    const write = await peer.openWriter()
    return async (event, isKept) => {
      await client.query("BEGIN")
      await write(client, event.topic, toEvent(event))
      await client.query(isKept ? "COMMIT" : "ROLLBACK")
    }
  })

const helper = () => {
  const opened = connect()
  answer({
    tables: async () => peer.tables(await opened),
    /** A backlog in one transaction: one event for each of these aggregates in turn. */
    fill: async ({ aggregateIds, data, topic, turns }) => {
      const client = await opened
      await client.query("BEGIN")
      for (let version = 1; version <= turns; version++) {
        const events = aggregateIds.map((aggregateId) =>
          toEvent({ aggregateType: "Bench", aggregateId, version, data })
        )
        await peer.fill(client, topic, events)
      }
      await client.query("COMMIT")
    }
  })
}

if (process.argv.includes("serve")) await relay()
else if (process.env.PEER_ROLE === "writer") writer()
else helper()
