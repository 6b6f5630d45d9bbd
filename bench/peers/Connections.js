/** How the peers connect: both settings come from the environment, under the names that the service has for them. */
import { Kafka, logLevel } from "kafkajs"
import { Client } from "pg"

/** A connection to Postgres. */
export const connect = async (options = "") => {
  const client = new Client({ connectionString: process.env.DATABASE_URL, options })
  await client.connect()
  return client
}

export const kafka = new Kafka({
  clientId: "peer",
  brokers: (process.env.KAFKA_BROKERS ?? "").split(","),
  logLevel: logLevel.ERROR
})
