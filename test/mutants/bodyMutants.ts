/** Mistakes of one line that let a small body cost much. */
import type { Mutant } from "./mutants.ts"

const seenByBytes = "test/http/RequestBytes.test.ts"

export const bodyMutants: ReadonlyArray<Mutant> = [
  {
    name: "blanks-backtrack",
    breaks: "a body of blanks keeps the event loop busy for a square of their number",
    file: "src/http/Body.ts",
    find: "saysNothing(body) ?",
    replace: "/^\\s*(?:\\{\\s*\\})?\\s*$/.test(body) ?",
    seenBy: { file: seenByBytes, test: "blanks cost what they weigh" }
  },
  {
    name: "arrived-body-of-any-size",
    breaks: "a body that does not announce its size is read beyond the limit where it comes in one packet",
    file: "src/http/Body.ts",
    find: "if (body.length > maxBytes) return yield* tooLarge(maxBytes)",
    replace: "",
    seenBy: { file: "test/http/BadInput.test.ts", test: "a body above the limit is 413" }
  },
  {
    name: "pieces-uncounted",
    breaks: "a body in pieces of one byte is kept, with a hundred bytes for each",
    file: "src/http/RequestBytes.ts",
    find: "if (count.pieces <= freePieces + count.bytes / leastPieceBytes) return",
    replace: "if (true) return",
    seenBy: { file: seenByBytes, test: "one that comes in thousands of tiny pieces" }
  },
  {
    name: "pieces-of-one-request",
    breaks: "requests that are pipelined have a budget of pieces each",
    file: "src/http/RequestBytes.ts",
    find: "arrived.set(this.socket, count)",
    replace: "",
    seenBy: { file: seenByBytes, test: "one that comes in thousands of tiny pieces" }
  },
  {
    name: "pieces-never-forgotten",
    breaks: "a client that keeps its connection is cut off after a thousand pieces",
    file: "src/http/Connections.ts",
    find: "if (use.underWay.length === 0) forgetPieces(socket)",
    replace: "",
    seenBy: { file: seenByBytes, test: "many short ones on one connection" }
  },
  {
    name: "strangers-move-the-cursor",
    breaks: "an operator's terminal obeys what a customer or a foreign record says",
    file: "src/cli/Operator.ts",
    find: "Terminal.colour(printable(line), Terminal.current())",
    replace: "line",
    seenBy: { file: "test/operations/TasksCommand.test.ts", test: "a dead task: found, shown" }
  },
  {
    name: "a-body-grows-over-itself",
    breaks: "a body that outgrows its buffer loses its beginning",
    file: "src/platform/GrowingBytes.ts",
    find: "larger.set(this.#held.subarray(0, this.#length))",
    replace: "",
    seenBy: { file: seenByBytes, test: "a short one may come byte by byte" }
  },
  {
    name: "announces-the-dead",
    breaks: "two thousand requests of a closed connection keep the event loop busy",
    file: "src/http/Connections.ts",
    find: "announcing.has(event) && ",
    replace: "false && ",
    seenBy: { file: "test/http/Connections.test.ts", test: "of a connection that sends hundreds" }
  },
  {
    name: "paths-with-two-spellings",
    breaks: "a path passes a proxy's rule in another spelling",
    file: "src/http/Observe.ts",
    find: " ?? misspelling(request)",
    replace: "",
    seenBy: { file: "test/http/BadInput.test.ts", test: "unknown paths are 404" }
  },
  {
    name: "a-body-for-head",
    breaks: "the answer to a HEAD that is not valid HTTP has a body, which its client takes for another answer",
    file: "src/http/InvalidHttp.ts",
    find: 'isHead ? "" : body',
    replace: "body",
    seenBy: { file: "test/http/BadInput.test.ts", test: "HEAD that is not valid HTTP" }
  }
]
