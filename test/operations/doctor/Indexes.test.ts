/** `indexes.txt` and `constraints.txt` beside each set of migrations: the doctor knows both by them. `npm test -- test/operations/doctor/Indexes.test.ts -u` writes it. */
import { assert, expect, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import * as Path from "node:path"
import { DatabaseSettings } from "../../../src/platform/DatabaseSettings.ts"
import * as ConstraintChecks from "../../../src/operations/doctor/ConstraintChecks.ts"
import * as IndexChecks from "../../../src/operations/doctor/IndexChecks.ts"
import * as Database from "../../../src/postgres/Database.ts"
import { apply, mechanism, setOf } from "../../../src/postgres/Migrations.ts"
import { root, TestDatabase } from "../../support/TestDatabase.ts"

const business = setOf(root, "business")

it.live("constraints.txt has all constraints that the migrations make", () =>
  Effect.gen(function* () {
    const { url } = yield* TestDatabase.make("template0")
    const [ofMechanism, ofAll] = yield* Effect.gen(function* () {
      yield* apply([mechanism])
      const first = yield* ConstraintChecks.found
      yield* apply([business])
      return [first, yield* ConstraintChecks.found] as const
    }).pipe(Effect.provide(Layer.provide(Database.layer, DatabaseSettings.layerOf({ url }))))
    const known = new Set(ofMechanism.map(({ definition }) => definition))
    const text = (all: typeof ofAll) => all.map(({ definition }) => `${definition}\n`).join("")
    yield* Effect.promise(async () => {
      await expect(text(ofMechanism)).toMatchFileSnapshot(Path.join(mechanism.directory, "constraints.txt"))
      await expect(text(ofAll.filter(({ definition }) => !known.has(definition)))).toMatchFileSnapshot(
        Path.join(business.directory, "constraints.txt")
      )
    })
  }).pipe(Effect.scoped)
)

it.live("indexes.txt has the definitions of all indexes that the migrations make", () =>
  Effect.gen(function* () {
    const { url } = yield* TestDatabase.make("template0")
    const [ofMechanism, ofAll] = yield* Effect.gen(function* () {
      yield* apply([mechanism])
      const first = yield* IndexChecks.found
      yield* apply([business])
      return [first, yield* IndexChecks.found] as const
    }).pipe(Effect.provide(Layer.provide(Database.layer, DatabaseSettings.layerOf({ url }))))
    const known = new Set(ofMechanism.map(({ name }) => name))
    const text = (indexes: typeof ofAll) => indexes.map(({ definition }) => `${definition}\n`).join("")
    assert.isTrue(ofAll.every(({ isValid }) => isValid))
    yield* Effect.promise(async () => {
      await expect(text(ofMechanism)).toMatchFileSnapshot(Path.join(mechanism.directory, "indexes.txt"))
      await expect(text(ofAll.filter(({ name }) => !known.has(name)))).toMatchFileSnapshot(
        Path.join(business.directory, "indexes.txt")
      )
    })
  }).pipe(Effect.scoped)
)
