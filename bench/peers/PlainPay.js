/**
 * Payments with `node:http` and `pg` alone: the service's own statements in their two transactions, and the charge between them. No checks, traces, metrics
 * or limits. Beside the statements alone it shows what HTTP and the gateway take of any service.
 */
import { randomUUID } from "node:crypto"
import Http from "node:http"
import { Pool } from "pg"
import { answer } from "../outside/Child.ts"
import { transactionsOf } from "../requests/RecordedPayment.ts"
import { generator } from "../../src/platform/Ids.ts"

// As many as the service's pool.
const pool = new Pool({ connectionString: process.env.DATABASE_URL, max: 16 })
const ids = generator(Date.now, randomUUID)

const transaction = async (statements) => {
  const client = await pool.connect()
  try {
    await client.query("BEGIN")
    // `pg` prepares a statement with a name once on each connection, and finds it by its name.
    for (const { name, params, sql } of statements) await client.query({ name, text: sql, values: params })
    await client.query("COMMIT")
  } catch (error) {
    await client.query("ROLLBACK")
    throw error
  } finally {
    client.release()
  }
}

const agent = new Http.Agent({ keepAlive: true })
const read = async (stream) => {
  const pieces = []
  for await (const piece of stream) pieces.push(piece)
  return JSON.parse(Buffer.concat(pieces).toString())
}

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
  const { status } = await read(response)
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
      await transaction(intent)
      const status = await charge(gateway, { ...body, orderId })
      await transaction(outcome)
      return { orderId, status }
    }
    const server = Http.createServer((request, response) => {
      const send = (status, body) =>
        response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body))
      read(request)
        .then((body) => pay(request.url.split("/")[2], body))
        .then((paid) => send(200, paid))
        .catch((error) => send(500, { error: String(error) }))
    })
    await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve))
    return `http://127.0.0.1:${server.address().port}`
  }
})
