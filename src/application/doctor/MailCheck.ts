/** The doctor's check of the mail server: it greets and takes our login. No mail is begun. */
import { Effect, Redacted } from "effect"
import { constants } from "node:fs"
import { access } from "node:fs/promises"
import { parseConnectionUrl } from "nodemailer/lib/shared"
import SMTPConnection from "nodemailer/lib/smtp-connection"
import { type Check, type Finding, notChecked, told } from "../../operations/doctor/Check.ts"
import * as Monotonic from "../../platform/Monotonic.ts"
import { presentable } from "../../platform/StorableText.ts"

/** A greeting takes milliseconds; some servers let strangers wait for some seconds on purpose. */
const greetMillis = 10_000

const slowMillis = 5_000

const greeting = (url: Redacted.Redacted) =>
  Effect.callback<void, Error>((resume) => {
    const { auth, ...server } = parseConnectionUrl(Redacted.value(url))
    const connection = new SMTPConnection({
      ...server,
      connectionTimeout: greetMillis,
      greetingTimeout: greetMillis,
      socketTimeout: greetMillis,
      socketCloseTimeout: 0
    })
    const end = (result: Effect.Effect<void, Error>) => {
      connection.close()
      resume(result)
    }
    connection.on("error", (error: Error) => end(Effect.fail(error)))
    connection.connect((error) => {
      if (error !== undefined) return end(Effect.fail(error))
      if (auth === undefined) return end(Effect.void)
      connection.login(auth, (refused) => end(refused === null ? Effect.void : Effect.fail(refused)))
    })
    return Effect.sync(() => connection.close())
  }).pipe(Effect.timeout(greetMillis))

const finding = (problem: string): Finding => ({
  problem,
  fix: "Look at the mail server, and at SMTP_URL; mails wait as tasks, and are sent once it answers",
  command: "npm run paid-once -- mail list"
})

/** `smtpUrl` is the mail server's; without one mails are files in `directory`. */
export const check = (options: {
  readonly smtpUrl: Redacted.Redacted | undefined
  readonly directory: string
}): Check => ({
  group: "mail",
  name: "mail-time",
  run: Effect.gen(function* () {
    const { directory, smtpUrl } = options
    if (smtpUrl === undefined) {
      const isWritable = yield* Effect.promise(() =>
        access(directory, constants.W_OK).then(
          () => true,
          (error: NodeJS.ErrnoException) => error.code === "ENOENT"
        )
      )
      return isWritable
        ? notChecked("without SMTP_URL mails are files of the process that sends them, and reach nobody")
        : told("", [finding(`mails are files in ${directory}, and this user may not write there`)])
    }
    const began = yield* Monotonic.millis
    const result = yield* Effect.result(greeting(smtpUrl))
    const took = (yield* Monotonic.millis) - began
    if (result._tag === "Failure") {
      return told("", [
        finding(`the mail server refuses or does not answer: ${presentable(result.failure.message, 300)}`)
      ])
    }
    return told(
      `the mail server greets in ${took.toFixed(0)} ms`,
      took <= slowMillis ? [] : [finding(`the mail server took ${(took / 1_000).toFixed(1)} s to greet`)]
    )
  })
})
