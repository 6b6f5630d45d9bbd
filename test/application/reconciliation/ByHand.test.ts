/** What a person does where no repair helps: each rule says it, and docs/reconciliation.md has the same sentences. */
import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { readFileSync } from "node:fs"
import * as Path from "node:path"
import { root } from "../../support/TestDatabase.ts"
import { look, test } from "./Books.ts"

test(
  "each rule without a repair says what a person does, as docs/reconciliation.md has it",
  Effect.gen(function* () {
    const { rules } = yield* look
    const manual = rules.filter(({ repair }) => repair === null)
    assert.isNotEmpty(manual)
    const page = readFileSync(Path.join(root, "docs/reconciliation.md"), "utf8")
    const table = page.slice(page.indexOf("## What only a person can mend"))
    assert.sameMembers(
      [...table.matchAll(/^\| `([a-z-]+)` \| (.*) \|$/gm)].map(([, rule, byHand]) => `${rule}: ${byHand}`),
      manual.map(({ byHand, rule }) => `${rule}: ${byHand}`)
    )
    const reference = readFileSync(Path.join(root, "docs/reference.md"), "utf8")
    for (const { byHand = "", rule } of manual) {
      // A command that does not exist, or a page, would send a person nowhere.
      const [command] = /paid-once [a-z-]+(?: (?:check|search|refill))?/.exec(byHand) ?? []
      if (command !== undefined) assert.include(reference, `### ${command.replace("paid-once ", "")}\n`, rule)
      for (const [path] of byHand.matchAll(/docs\/[a-z]+\.md/g)) assert.isNotEmpty(readFileSync(Path.join(root, path)))
      assert.match(byHand, /paid-once|docs\//, rule)
    }
  })
)
