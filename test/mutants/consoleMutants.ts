/** Mistakes of one line in the console's pages. They are seen by a real browser. */
import type { Mutant } from "./mutants.ts"

const decisions = "test/console/Decisions.test.ts"
const pages = "test/console/Pages.test.ts"
const lives = "test/console/Lives.test.ts"

export const consoleMutants: ReadonlyArray<Mutant> = [
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
    find: "filter: bodyFilter(filter),",
    replace: "filter: {},",
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
    name: "calls-a-dead-event-on-its-way",
    breaks: "the page says that an event is on its way that nobody sends any more",
    file: "src/console/pages/breakIt/SumsSection.js",
    find: "dead > 0",
    replace: "dead < 0",
    seenBy: { file: lives, test: "Break it says plainly" }
  }
]
