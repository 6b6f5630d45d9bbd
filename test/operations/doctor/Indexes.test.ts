/** `indexes.txt`, `constraints.txt`, `tables.txt` and `functions.txt` beside each set of migrations: what the doctor expects. `npm test -- test/operations/doctor/Indexes.test.ts -u` writes them. */
import { assert, expect, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import * as Path from "node:path"
import { DatabaseSettings } from "../../../src/platform/DatabaseSettings.ts"
import * as ConstraintChecks from "../../../src/operations/doctor/ConstraintChecks.ts"
import * as FunctionChecks from "../../../src/operations/doctor/FunctionChecks.ts"
import * as IndexChecks from "../../../src/operations/doctor/IndexChecks.ts"
import * as TableChecks from "../../../src/operations/doctor/TableChecks.ts"
import * as Database from "../../../src/postgres/Database.ts"
import { apply, mechanism, setOf } from "../../../src/postgres/Migrations.ts"
import { root, TestDatabase } from "../../support/TestDatabase.ts"

const business = setOf(root, "business")

/** What a check finds once a set of migrations is applied after the other: a file for each, and what the second has more. */
const holds = <E, R>(file: string, found: Effect.Effect<ReadonlyArray<string>, E, R>) =>
  Effect.gen(function* () {
    const { url } = yield* TestDatabase.make("template0")
    const [ofMechanism, ofAll] = yield* Effect.gen(function* () {
      yield* apply([mechanism])
      const first = yield* found
      yield* apply([business])
      return [first, yield* found] as const
    }).pipe(Effect.provide(Layer.provide(Database.layer, DatabaseSettings.layerOf({ url }))))
    const known = new Set(ofMechanism)
    const text = (all: ReadonlyArray<string>) => all.map((line) => `${line}\n`).join("")
    yield* Effect.promise(async () => {
      await expect(text(ofMechanism)).toMatchFileSnapshot(Path.join(mechanism.directory, file))
      await expect(text(ofAll.filter((line) => !known.has(line)))).toMatchFileSnapshot(
        Path.join(business.directory, file)
      )
    })
  }).pipe(Effect.scoped)

it.live("constraints.txt has all constraints that the migrations make", () =>
  holds(
    "constraints.txt",
    Effect.map(ConstraintChecks.found, (all) => all.map(({ definition }) => definition))
  )
)

it.live("tables.txt has all columns, sequences, storage parameters, triggers and views that the migrations make", () =>
  holds(
    "tables.txt",
    Effect.map(TableChecks.found, (all) => all.map(({ statement }) => statement))
  )
)

it.live("functions.txt has the statement of each function that the migrations make", () =>
  holds("functions.txt", FunctionChecks.found)
)

it.live("indexes.txt has the definitions of all indexes that the migrations make", () =>
  holds(
    "indexes.txt",
    Effect.map(IndexChecks.found, (all) => {
      assert.isTrue(all.every(({ isValid }) => isValid))
      return all.map(({ definition }) => definition)
    })
  )
)
