/** What the servers of plain code share: a pool, transactions, bodies, and their port. */
import { Pool } from "pg"

// As many as the service's pool.
export const pool = new Pool({ connectionString: process.env.DATABASE_URL, max: 16 })

/** Runs `work` with a connection in a transaction. */
export const transaction = async (work) => {
  const client = await pool.connect()
  try {
    await client.query("BEGIN")
    const result = await work(client)
    await client.query("COMMIT")
    return result
  } catch (error) {
    await client.query("ROLLBACK")
    throw error
  } finally {
    client.release()
  }
}

/** The JSON of a request or of a response. */
export const bodyOf = async (stream) => {
  const pieces = []
  for await (const piece of stream) pieces.push(piece)
  return JSON.parse(Buffer.concat(pieces).toString())
}

/** Listens on any port. Returns the server's URL. */
export const listen = async (server) => {
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve))
  return `http://127.0.0.1:${server.address().port}`
}
