/**
 * Payments with `node:http` and `pg` alone: the service's own statements in their two transactions, and the charge between them. No checks, traces, metrics
 * or limits. Beside the statements alone it shows what HTTP and the gateway take of any service.
 */
import { randomUUID } from "node:crypto"
import Http from "node:http"
import { answer } from "../outside/Child.ts"
import { transactionsOf } from "../requests/RecordedPayment.ts"
import { generator } from "../../src/platform/Ids.ts"
import { bodyOf, listen, transaction } from "./Plain.js"

const ids = generator(Date.now, randomUUID)

const run = (statements) =>
  transaction(async (client) => {
    // `pg` prepares a statement with a name once on each connection, and finds it by its name.
    for (const { name, params, sql } of statements) await client.query({ name, text: sql, values: params })
  })

const agent = new Http.Agent({ keepAlive: true })

const charge = async (gateway, body) => {
  const response = await new Promise((resolve, reject) => {
    const request = Http.request(
      `${gateway}/charges`,
      { method: "POST", agent, headers: { "content-type": "application/json" } },
      resolve
    )
    request.on("error", reject)
    request.end(JSON.stringify(body))
  })
  const { status } = await bodyOf(response)
  if (status !== "captured") throw new Error(`the gateway answered ${response.statusCode}`)
  return status
}

answer({
  listen: async ({ gateway, recorded }) => {
    const named = {
      ...recorded,
      statements: recorded.statements.map((one, index) => ({ ...one, name: `pay ${index}` }))
    }
    const pay = async (orderId, body) => {
      const [intent, outcome] = transactionsOf(named, orderId, ids.next)
      await run(intent)
      const status = await charge(gateway, { ...body, orderId })
      await run(outcome)
      return { orderId, status }
    }
    const server = Http.createServer((request, response) => {
      const send = (status, body) =>
        response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body))
      bodyOf(request)
        .then((body) => pay(request.url.split("/")[2], body))
        .then((paid) => send(200, paid))
        .catch((error) => send(500, { error: String(error) }))
    })
    return listen(server)
  }
})
