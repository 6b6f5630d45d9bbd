/** Mistakes in the sessions of the console: what they are bound to, what ends them, and what they cost. */
import type { Mutant } from "./mutants.ts"

const sessions = "src/http/access/Sessions.ts"
const credentials = "src/http/access/Credentials.ts"
const sessionsTest = "test/http/Sessions.test.ts"
const lastingTest = "test/http/LastingSessions.test.ts"

export const sessionMutants: ReadonlyArray<Mutant> = [
  {
    name: "session-for-ever",
    breaks: "a stolen cookie is good as long as its thief keeps it busy",
    file: sessions,
    find: " && now - session.beganMillis < lifeMillis",
    replace: "",
    seenBy: { file: lastingTest, test: "a session ends after half a day" }
  },
  {
    name: "idle-session",
    breaks: "a browser that nobody uses stays signed in over the night",
    file: sessions,
    find: "now - session.usedMillis < idleMillis && ",
    replace: "",
    seenBy: { file: lastingTest, test: "a session ends after half a day" }
  },
  {
    name: "sessions-without-number",
    breaks: "sign-ins fill the table",
    file: sessions,
    find: "OFFSET ${maxSessions - 1})",
    replace: "OFFSET ${maxSessions * 10})",
    seenBy: { file: lastingTest, test: "there are a hundred sessions at most" }
  },
  {
    name: "sessions-of-one-pool",
    breaks: "a viewer who signs in a hundred times signs every operator out",
    file: sessions,
    find: "PARTITION BY name ORDER BY",
    replace: "ORDER BY",
    seenBy: { file: lastingTest, test: "who signs in again and again" }
  },
  {
    name: "session-of-any-credential",
    breaks: "a session goes on after its credential was removed, and whoever writes to the table makes one",
    file: sessions,
    find: `createHmac("sha256", digest).update(id)`,
    replace: `createHmac("sha256", "").update(id)`,
    seenBy: { file: lastingTest, test: "a session has its credential's scope as it is now" }
  },
  {
    name: "session-of-a-customer",
    breaks: "a key that has become a customer's keeps its session of the console",
    file: credentials,
    find: `...(keys ?? []).filter(({ scope }) => scope !== "customer"),`,
    replace: "...(keys ?? []),",
    seenBy: { file: lastingTest, test: "a session has its credential's scope as it is now" }
  },
  {
    name: "sign-out-of-one-process",
    breaks: "who has copied the cookie goes on at another process",
    file: sessions,
    find: "if (cached !== undefined && now - lookedAtMillis < cacheMillis) return cached",
    replace: "if (cached !== undefined) return cached",
    seenBy: { file: lastingTest, test: "a session goes on after a restart" }
  },
  {
    name: "sign-in-at-one-process",
    breaks: "who has just signed in is refused by the next process behind the balancer",
    file: sessions,
    find: "(lookedAtMillis >= now ? Effect.void : look)",
    replace: "(lookedAtMillis >= now - cacheMillis ? Effect.void : look)",
    seenBy: { file: lastingTest, test: "a session goes on after a restart" }
  },
  {
    name: "look-for-each-made-up-id",
    breaks: "a stranger's cookies make the database read the table as often as he likes",
    file: sessions,
    find: "(lookedAtMillis >= now ? Effect.void : look)",
    replace: "look",
    seenBy: { file: lastingTest, test: "requests of known sessions look once" }
  },
  {
    name: "used-at-each-request",
    breaks: "every request of the console writes a row",
    file: sessions,
    find: "if (now - found.session.usedMillis >= usedMillisExact) {",
    replace: "if (found !== undefined) {",
    seenBy: { file: lastingTest, test: "requests of known sessions look once" }
  },
  {
    name: "signed-out-by-an-outage",
    breaks: "a database that does not answer signs everybody out",
    file: sessions,
    find: "return found === undefined && failure !== undefined ? yield* failure : found",
    replace: "return found",
    seenBy: { file: lastingTest, test: "while the database does not answer" }
  },
  {
    name: "health-asks-for-the-session",
    breaks: "the console's files and health wait for a database that does not answer",
    file: "src/http/access/Access.ts",
    find: "callerOf(request, needed !== undefined)",
    replace: "callerOf(request, needed !== null)",
    seenBy: { file: lastingTest, test: "while the database does not answer" }
  },
  {
    name: "missing-origin-untold",
    breaks: "a program that sends a session without an Origin is told to open the link of the start",
    file: credentials,
    find: "return lacksOrigin ? refused(withoutOrigin) : nobody",
    replace: "return lacksOrigin ? nobody : nobody",
    seenBy: { file: sessionsTest, test: "a cookie counts for pages of this service alone" }
  },
  {
    name: "planted-cookie-first",
    breaks: "a cookie that another port's page has set keeps the operator out",
    file: sessions,
    find: ".slice(0, maxIds)",
    replace: ".slice(0, 1)",
    seenBy: { file: sessionsTest, test: "a session's id is drawn here" }
  }
]
