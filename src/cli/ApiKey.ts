/** `paid-once api-key`: draws an API key, and prints it with the entry of API_KEYS that admits it. Nothing is stored. */
import { Console, Effect } from "effect"
import { Argument, Command, Flag } from "effect/cli"
import * as ApiKeys from "../http/access/ApiKeys.ts"
import { json, print } from "./Operator.ts"
import { ExitStatus } from "./Process.ts"

/** The command. */
export const apiKey = Command.make(
  "api-key",
  {
    name: Argument.String("name").pipe(
      Argument.withDescription("the program that will use it; a program that gets a new key keeps its name")
    ),
    scope: Flag.Literals("scope", ApiKeys.scopes).pipe(
      Flag.withDescription("customer: orders and payments; viewer: what the console shows; operator: everything")
    ),
    json
  },
  Effect.fnUntraced(function* ({ json, name, scope }) {
    const wrong = ApiKeys.refusedName(name)
    if (wrong !== undefined) {
      yield* Console.error(`paid-once: ${wrong}`)
      return yield* Effect.fail(new ExitStatus(2))
    }
    const { entry, key } = ApiKeys.draw(name, scope)
    yield* print(json, { name, scope, key, entry }, () => [
      `The key of ${name}. It is shown this once, and sent as "Authorization: Bearer KEY":`,
      "",
      `  ${key}`,
      "",
      "The service knows it by this entry. Add it to API_KEYS, with a comma between entries, and restart:",
      "",
      `  ${entry}`
    ])
  })
)
