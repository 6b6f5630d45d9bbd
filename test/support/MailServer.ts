/** A real SMTP server in the test's process. It takes mails, refuses them or does not answer, as the test says. */
import { Effect } from "effect"
import { SMTPServer, type SMTPServerOptions } from "smtp-server"
import type { AddressInfo } from "node:net"

/** The server's answers. A number is a reply code; `silence` is no reply at all. */
export interface Behaviour {
  readonly login?: number
  readonly sender?: number
  readonly recipient?: number | "silence"
  /** The reply after the whole message. `cut` takes the mail, and the connection breaks before the reply. */
  readonly message?: number | "silence" | "cut"
}

/** A mail that the server has taken. */
export interface Taken {
  readonly from: string
  readonly to: ReadonlyArray<string>
  readonly source: string
}

const refusal = (code: number) => Object.assign(new Error(`no (${code})`), { responseCode: code })

/** A header of a mail's source, unfolded. */
export const header = (source: string, name: string) =>
  new RegExp(`^${name}: (.*)$`, "im").exec(source.replaceAll(/\r\n[ \t]+/g, " "))?.[1]?.trim()

export const make = (
  options: { readonly port?: number; readonly login?: { readonly user: string; readonly password: string } } = {}
) =>
  Effect.acquireRelease(
    Effect.callback<{
      readonly port: number
      readonly taken: ReadonlyArray<Taken>
      readonly behave: (behaviour: Behaviour) => void
      readonly stop: Effect.Effect<void>
    }>((resume) => {
      const taken: Array<Taken> = []
      let behaviour: Behaviour = {}
      const answer = (code: number | "silence" | undefined, callback: (error?: Error | null) => void) => {
        if (code === "silence") return
        callback(code === undefined ? null : refusal(code))
      }
      const settings: SMTPServerOptions = {
        disableReverseLookup: true,
        // The server has no certificate that a client could trust, so it does not offer STARTTLS.
        disabledCommands: options.login === undefined ? ["STARTTLS", "AUTH"] : ["STARTTLS"],
        allowInsecureAuth: true,
        authOptional: options.login === undefined,
        onAuth: ({ password, username }, _, callback) => {
          const known = username === options.login?.user && password === options.login?.password
          if (behaviour.login !== undefined) return callback(refusal(behaviour.login))
          return known ? callback(null, { user: username }) : callback(refusal(535))
        },
        onMailFrom: (_, __, callback) => answer(behaviour.sender, callback),
        onRcptTo: (_, __, callback) => answer(behaviour.recipient, callback),
        onData: (stream, session, callback) => {
          const chunks: Array<Buffer> = []
          stream.on("data", (chunk: Buffer) => chunks.push(chunk))
          stream.on("end", () => {
            const { mailFrom, rcptTo } = session.envelope
            if (behaviour.message === undefined || behaviour.message === "cut") {
              taken.push({
                from: mailFrom === false ? "" : mailFrom.address,
                to: rcptTo.map(({ address }) => address),
                source: Buffer.concat(chunks).toString("utf8")
              })
            }
            if (behaviour.message !== "cut") return answer(behaviour.message, callback)
            for (const connection of server.connections) connection.close()
          })
        }
      }
      const server = new SMTPServer(settings)
      // In some tests the client closes its connection in the middle.
      server.on("error", () => undefined)
      const listening = server.listen(options.port ?? 0, "127.0.0.1", () => {
        resume(
          Effect.succeed({
            port: (listening.address() as AddressInfo).port,
            taken,
            behave: (next) => {
              behaviour = next
            },
            stop: Effect.callback<void>((done) => {
              for (const connection of server.connections) connection.close()
              server.close(() => done(Effect.void))
            })
          })
        )
      })
    }),
    ({ stop }) => stop
  )
