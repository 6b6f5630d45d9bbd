/** docs/reference.md and .env.example agree with the code. */
import { assert, it } from "@effect/vitest"
import { readFile } from "node:fs/promises"
import { ConfigProvider, Effect } from "effect"
import { parseEnv } from "node:util"
import * as Config from "../../src/Config.ts"
import { descriptions, descriptionsPath, environment, environmentPath, path, reference } from "./reference.ts"
import { variableDescriptions } from "../../src/VariableDescriptions.ts"

it("docs/reference.md agrees with the code, or `npm run reference` must write it", async () => {
  const page = await reference()
  // If a source were not found, the page would be empty, and equal to an empty file.
  for (const word of ["DATABASE_URL", "outbox_dead_letters", "dispatcher.after-publish", "--roles"]) {
    assert.include(page, word)
  }
  assert.strictEqual(await readFile(path, "utf8"), page)
  // Some thirty commands are asked for their help, a process each.
}, 600_000)

it("each variable is in .env.example with its default, or `npm run reference` must write it", async () => {
  const text = await environment()
  assert.strictEqual(await readFile(environmentPath, "utf8"), text)
  const uncommented = parseEnv(text.replaceAll(/^#(?=[A-Z])/gm, ""))
  assert.sameMembers(Object.keys(uncommented), [...Config.variableNames])
  const load = (env: Readonly<Record<string, unknown>>) =>
    Effect.runPromise(
      Effect.provideService(Config.load, ConfigProvider.ConfigProvider, ConfigProvider.fromUnknown(env))
    )
  assert.deepStrictEqual(await load(uncommented), await load({}))
})

it("the service tells of each variable what its docstring says, or `npm run reference` must write it", async () => {
  assert.strictEqual(await readFile(descriptionsPath, "utf8"), await descriptions())
  assert.deepStrictEqual(
    Config.variableNames.filter((name) => !/^[A-Z0-9].{15,}\.$/.test(variableDescriptions[name] ?? "")),
    []
  )
})
