/** Wrong usage is one line on stderr: what is wrong, and where help is. A page of help in its place hides the line that matters. */
import { Console } from "effect"
import { CliOutput } from "effect/cli"

/** A schema's words about a wrong value, without what only a programmer knows. */
const plain = (message: string): string =>
  message
    .replaceAll("Schema validation failed: ", "")
    .replaceAll("Expected: Expected ", "Expected ")
    .replaceAll(/\s+/g, " ")
    .trim()
    .replace(/\.$/, "")

/** Help that was asked for is printed as always. */
export const layer = CliOutput.layerPresenter({
  present: (event) =>
    event._tag === "InvalidInvocation"
      ? Console.error(
          `paid-once: ${event.errors.map(({ message }) => plain(message)).join("; ")} (${event.commandPath.join(" ")} --help)`
        )
      : CliOutput.defaultPresenter.present(event)
})
