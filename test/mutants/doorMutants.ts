/** Mistakes at the operators' door: credentials, sessions, the link of the start, and the console's files. */
import type { Mutant } from "./mutants.ts"

const access = "src/http/access/Access.ts"
const credentials = "src/http/access/Credentials.ts"
const cookie = "src/http/access/SessionCookie.ts"
const guesses = "src/http/access/Guesses.ts"
const files = "src/http/Console.ts"
const accessTest = "test/http/AdminAccess.test.ts"
const sessionsTest = "test/http/Sessions.test.ts"
const filesTest = "test/http/ConsoleFiles.test.ts"

export const doorMutants: ReadonlyArray<Mutant> = [
  {
    name: "admin-open-without-keys",
    breaks: "a program on this machine decides for the operator, where no keys are configured",
    file: access,
    find: "scope === undefined || (isAdmin(path) && !isProven)",
    replace: "scope === undefined",
    seenBy: { file: accessTest, test: "no route under /admin answers without a credential" }
  },
  {
    name: "viewers-write",
    breaks: "a viewer retries, discards and settles",
    file: access,
    find: `isAdmin(route) && reads.has(method) ? "viewer" : "operator"`,
    replace: `isAdmin(route) ? "viewer" : "operator"`,
    seenBy: { file: accessTest, test: "a viewer reads, and gets 403" }
  },
  {
    name: "customers-view",
    breaks: "a shop's program reads what all shops do",
    file: access,
    find: `scope === needed || scope === "operator" ||`,
    replace: `scope === needed || scope === "operator" || needed === "viewer" ||`,
    seenBy: { file: accessTest, test: "a viewer reads, and gets 403" }
  },
  {
    name: "viewers-pay",
    breaks: "a viewer places, pays and cancels orders",
    file: access,
    find: `needed === "customer" && reads.has(method)`,
    replace: `needed === "customer"`,
    seenBy: { file: accessTest, test: "a viewer reads, and gets 403" }
  },
  {
    name: "link-for-ever",
    breaks: "who finds the link in a history or a log signs in with it",
    file: credentials,
    find: "if (isLink) link = undefined",
    replace: "",
    seenBy: { file: sessionsTest, test: "its token is good for one session" }
  },
  {
    name: "link-for-other-machines",
    breaks: "a service that others reach prints a way in to its log",
    file: credentials,
    find: "hasOperator || !isLoopback(host) ? undefined",
    replace: "hasOperator ? undefined",
    seenBy: { file: accessTest, test: "no link is drawn" }
  },
  {
    name: "customers-sign-in",
    breaks: "a shop's program gets a session of the console",
    file: credentials,
    find: `if (owner.scope === "customer") {`,
    replace: "if (false) {",
    seenBy: { file: sessionsTest, test: "a session has the name and the scope" }
  },
  {
    name: "token-guessed-by-sign-in",
    breaks: "a program guesses ADMIN_TOKEN by signing in without end",
    file: credentials,
    find: "if (tooMany !== undefined) return yield* tooMany",
    replace: "void tooMany",
    seenBy: { file: sessionsTest, test: "after ten wrong tokens" }
  },
  {
    name: "token-guessed-by-header",
    breaks: "a program guesses ADMIN_TOKEN by its header without end",
    file: credentials,
    find: "if (adminToken === undefined || (yield* guesses.refusal(addressOf(request))) !== undefined) return nobody",
    replace: "if (adminToken === undefined) return nobody",
    seenBy: { file: sessionsTest, test: "after ten wrong tokens" }
  },
  {
    name: "header-guesses-uncounted",
    breaks: "guesses in a header don't count, and there may be any number of them",
    file: credentials,
    find: `        yield* failed(request)
        return nobody`,
    replace: "        return nobody",
    seenBy: { file: sessionsTest, test: "after ten wrong tokens" }
  },
  {
    name: "guesses-never-forgotten",
    breaks: "an operator who has mistyped ten times is kept out until the next start",
    file: guesses,
    find: "const waitMillis = clearAtMillis[bucketOf(address)]! - now - ",
    replace: "const waitMillis = clearAtMillis[bucketOf(address)]! - ",
    seenBy: { file: sessionsTest, test: "an address that has sent ten wrong tokens" }
  },
  {
    name: "sign-out-in-the-browser",
    breaks: "who has copied the cookie goes on after the sign-out",
    file: credentials,
    find: "signOut: (request) => sessions.end(SessionCookie.idsOf(request))",
    replace: "signOut: () => Effect.void",
    seenBy: { file: sessionsTest, test: "its token is good for one session" }
  },
  {
    name: "cookie-for-scripts",
    breaks: "a script in the page reads the session",
    file: cookie,
    find: "httpOnly: true",
    replace: "httpOnly: false",
    seenBy: { file: sessionsTest, test: "its token is good for one session" }
  },
  {
    name: "cookie-for-other-sites",
    breaks: "the browser sends the session along with requests of other sites",
    file: cookie,
    find: `sameSite: "strict" as const`,
    replace: `sameSite: "lax" as const`,
    seenBy: { file: sessionsTest, test: "its token is good for one session" }
  },
  {
    name: "cookie-in-clear-text",
    breaks: "behind TLS the browser sends the session over a connection without it",
    file: cookie,
    find: `request.headers.origin?.startsWith("https:") === true`,
    replace: "false",
    seenBy: { file: sessionsTest, test: "behind TLS the cookie" }
  },
  {
    name: "cookie-of-the-host",
    breaks: "two services on one machine end each other's sessions",
    file: cookie,
    find: "return port === undefined ? baseName : ",
    replace: "return port !== undefined ? baseName : ",
    seenBy: { file: sessionsTest, test: "its token is good for one session" }
  },
  {
    name: "cookie-of-a-neighbour",
    breaks: "a page of another port uses its visitor's session",
    file: cookie,
    find: "=>\n  isOfOurPage(request) ? idsIn(request) : []",
    replace: "=> idsIn(request)",
    seenBy: { file: sessionsTest, test: "a cookie counts for pages of this service alone" }
  },
  {
    name: "cookie-behind-a-wrong-key",
    breaks: "a program that sends a wrong key acts as whoever its browser has signed in",
    file: credentials,
    find: "if (authorization !== undefined) return ofAuthorization",
    replace: "if (authorization !== undefined && cookie === undefined) return ofAuthorization",
    seenBy: { file: sessionsTest, test: "a session has the name and the scope" }
  },
  {
    name: "any-operator-name",
    breaks: "a name with a line break forges a line of the audit's listing",
    file: "src/http/admin/CurrentOperator.ts",
    find: "return printable.test(name) ? name : undefined",
    replace: "return name",
    seenBy: { file: accessTest, test: "the actor is the credential's name" }
  },
  {
    name: "token-in-traces",
    breaks: "a collector of traces gets the token of the link",
    file: "src/http/HttpServer.ts",
    find: `(names) => [...names, "token"]`,
    replace: "(names) => names",
    seenBy: { file: filesTest, test: "the token of the link is in no trace" }
  },
  {
    name: "console-with-inline-scripts",
    breaks: "a hostile string that gets into the page as markup runs",
    file: files,
    find: `\`script-src \${["'self'", `,
    replace: `\`script-src \${["'self'", "'unsafe-inline'", `,
    seenBy: { file: filesTest, test: "the page answers each address" }
  },
  {
    name: "console-takes-markup",
    breaks: "code that writes a string to innerHTML works, and a hostile one becomes markup",
    file: files,
    find: `    "require-trusted-types-for 'script'",\n`,
    replace: "",
    seenBy: { file: filesTest, test: "the page answers each address" }
  },
  {
    name: "policy-lost-with-304",
    breaks: "a reload of the console gets the policy of an answer that may load nothing",
    file: files,
    find: "headers: { ...file.headers, etag } })",
    replace: "headers: { etag } })",
    seenBy: { file: filesTest, test: "a file is sent compressed" }
  },
  {
    name: "one-tag-for-both-forms",
    breaks: "a cache gives compressed bytes to a client that takes none",
    file: files,
    find: `\${isZipped ? "-gzip" : ""}`,
    replace: "",
    seenBy: { file: filesTest, test: "a file is sent compressed" }
  },
  {
    name: "page-instead-of-module",
    breaks: "a missing module is answered with the page, and its error tells nothing",
    file: files,
    find: "return isFile ? toResponse(nowhere()) : ",
    replace: "return name === undefined ? toResponse(nowhere()) : ",
    seenBy: { file: filesTest, test: "no path leads out of the room" }
  },
  {
    name: "root-for-everybody",
    breaks: "a program that asks for / is led to a page instead of being told that nothing is there",
    file: files,
    find: `/\\btext\\/html\\b/i.test(headers["accept"] ?? "")`,
    replace: "headers !== undefined",
    seenBy: { file: filesTest, test: "the root leads a browser" }
  }
]
