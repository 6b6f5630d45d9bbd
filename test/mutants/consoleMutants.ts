/** Mistakes in the console's own code, which the browser runs: a real one sees them. */
import type { Mutant } from "./mutants.ts"

const live = "test/console/Live.test.ts"
const travel = "test/console/Travel.test.ts"
const decisions = "test/console/Decisions.test.ts"
const pages = "test/console/Pages.test.ts"
const lives = "test/console/Lives.test.ts"
const viewers = "test/console/Viewers.test.ts"
const bulk = "test/console/Bulk.test.ts"

export const consoleMutants: ReadonlyArray<Mutant> = [
  {
    name: "console-never-stale",
    breaks: "a page shows figures of a dead service as those of now",
    file: "src/console/live.js",
    find: 'if (connection === "live" && performance.now() - heardAt > staleMillis)',
    replace: "if (connection === undefined)",
    seenBy: { file: live, test: "a service that dies is said to be away" }
  },
  {
    name: "console-filter-forgets",
    breaks: "a filter that is half typed is emptied when the list is read anew",
    file: "src/console/filter.js",
    find: "}, [value])",
    replace: "})",
    seenBy: { file: live, test: "a filter that is half typed" }
  },
  {
    name: "console-page-never-opens",
    breaks: "a page that was opened in an outage stays closed when the service is back",
    file: "src/console/main.js",
    find: "while (!signal.aborted) {",
    replace: "while (!signal.aborted && !hasFailed) {",
    seenBy: { file: lives, test: "a page that is opened while the service is away" }
  },
  {
    name: "console-signed-out-untold",
    breaks: "who was signed out gets a form for a token, and does not learn why",
    file: "src/console/session.js",
    find: 'localStorage.setItem(signedInKey, "yes")',
    replace: "void 0",
    seenBy: { file: lives, test: "a session that is ended elsewhere" }
  },
  {
    name: "console-stream-from-now",
    breaks: "a stream that is taken up again misses the samples in between",
    file: "src/console/live.js",
    find: "last === undefined ?",
    replace: "true ?",
    seenBy: { file: live, test: "tabs of a browser read one stream" }
  },
  {
    name: "console-all-hops-wait",
    breaks: "each consumer of an event that is not sent yet reads as held up",
    file: "src/console/pages/orders/Leg.js",
    find: 'hop.state === "waiting" && hop.after !== null && !done.has(hop.after)',
    replace: "false",
    seenBy: { file: travel, test: "an event that waits says why" }
  },
  {
    name: "console-load-unseen",
    breaks: "a hidden page goes on placing orders",
    file: "src/console/traffic.js",
    find: 'document.visibilityState === "hidden" && traffic.get().perSecond > 0',
    replace: "traffic.get().perSecond < 0",
    seenBy: { file: travel, test: "load is made of real orders" }
  },
  {
    name: "decides-without-a-reason",
    breaks: "the audit says who and what, and not why",
    file: "src/console/deadLetters.js",
    find: "await post(path, { reason })",
    replace: `await post(path, { reason: "-" })`,
    seenBy: { file: decisions, test: "an event that the broker refused is looked at" }
  },
  {
    name: "retries-what-it-should-discard",
    breaks: "a button does something else than it says",
    file: "src/console/deadLetters.js",
    find: 'path: `${path}/discard`,\n      does: "The event is never published.',
    replace: 'path: `${path}/retry`,\n      does: "The event is never published.',
    seenBy: { file: decisions, test: "an event that the broker refused is looked at" }
  },
  {
    name: "forgets-the-filter-in-bulk",
    breaks: "a bulk retry takes all events, and not those that the filter shows",
    file: "src/console/pages/DeadLetters.js",
    find: "decideAll(of, bodyFilter(filter), {",
    replace: "decideAll(of, {}, {",
    seenBy: { file: lives, test: "ten thousand dead letters are paged" }
  },
  {
    name: "error-as-markup",
    breaks: "an event's error runs as a script in the operator's browser, with the operator's rights",
    file: "src/console/pages/Tasks.js",
    find: `<span class="error">\${lastError ?? "–"}</span>`,
    replace: `<span class="error" dangerouslySetInnerHTML=\${{ __html: lastError ?? "–" }}></span>`,
    seenBy: { file: pages, test: "axe finds nothing in both themes" }
  },
  {
    name: "button-without-a-name",
    breaks: "who can't see the table does not know which mail a button is about",
    file: "src/console/pages/Mail.js",
    find: "nameOf=${(/** @type {any} */ { id }) => `mail ${id}`}",
    replace: "",
    seenBy: { file: decisions, test: "mail of unknown outcome arrived" }
  },
  {
    name: "arrived-means-given-up",
    breaks: "a mail that arrived is recorded as given up",
    file: "src/console/pages/Mail.js",
    find: `run: resolved("delivered")`,
    replace: `run: resolved("given-up")`,
    seenBy: { file: decisions, test: "mail of unknown outcome arrived" }
  },
  {
    name: "given-up-means-arrived",
    breaks: "a mail that is given up is recorded as arrived",
    file: "src/console/pages/Mail.js",
    find: `run: resolved("given-up")`,
    replace: `run: resolved("delivered")`,
    seenBy: { file: decisions, test: "mail of unknown outcome arrived" }
  },
  {
    name: "offers-a-viewer-decisions",
    breaks: "who may only read gets the forms of all decisions, and is refused at the end",
    file: "src/console/act.js",
    find: "canWrite ? impossible :",
    replace: "true ? impossible :",
    seenBy: { file: viewers, test: "a viewer sees every page" }
  },
  {
    name: "places-orders-for-a-viewer",
    breaks: "the page asks for what its reader may not do",
    file: "src/console/pages/orders/FollowOne.js",
    find: "isRunning.current || !canWrite",
    replace: "isRunning.current",
    seenBy: { file: viewers, test: "a viewer sees every page" }
  },
  {
    name: "forgets-the-cause-in-bulk",
    breaks: "a retry of one cause takes the tasks of all causes",
    file: "src/console/pages/Tasks.js",
    find: "                          cause,\n                          type,",
    replace: "                          type,",
    seenBy: { file: bulk, test: "dead tasks of one cause are retried" }
  },
  {
    name: "retries-every-consumers",
    breaks: "a retry of one consumer's dead letters takes those of all",
    file: "src/console/pages/DeadLetters.js",
    find: `filters: ["consumer", "type"`,
    replace: `filters: ["type"`,
    seenBy: { file: bulk, test: "the dead letters of one consumer are retried" }
  },
  {
    name: "calls-a-dead-event-on-its-way",
    breaks: "the page says that an event is on its way that nobody sends any more",
    file: "src/console/pages/breakIt/SumsSection.js",
    find: "dead > 0",
    replace: "dead < 0",
    seenBy: { file: lives, test: "Break it says plainly" }
  },
  {
    name: "names-of-ascii-alone",
    breaks: "an operator whose name has another letter gets a refusal for each decision",
    file: "src/console/api.js",
    find: "encodeURIComponent(name)",
    replace: "name",
    seenBy: { file: decisions, test: "dead letters are found by cause" }
  },
  {
    name: "half-typed-name-reset",
    breaks: "news takes away what an operator types",
    file: "src/console/shell.js",
    find: "defaultValue=${name}",
    replace: "value=${name}",
    seenBy: { file: live, test: "a half-typed name stays" }
  }
]
