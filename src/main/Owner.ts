/** The schema where it has an owner: DATABASE_OWNER_URL migrates, and grants to the role of DATABASE_URL what the service needs. */
import { Effect, Layer, type Redacted } from "effect"
import { SqlError } from "effect/sql"
import { DatabaseSettings } from "../platform/DatabaseSettings.ts"
import { innermost } from "../platform/Innermost.ts"
import * as Database from "../postgres/Database.ts"
import { apply, Migrated, type MigrationSet } from "../postgres/Migrations.ts"
import * as Roles from "../postgres/Roles.ts"
import { DatabaseUnusable } from "../postgres/StartChecks.ts"
import * as SandboxSchema from "../sandbox/SandboxSchema.ts"

const variable = "DATABASE_OWNER_URL"

/** As the owner: the schema, and the grants of `role`. The owner's connection is closed then. */
const prepare = Effect.fn("Owner.prepare")(function* (
  role: string,
  sets: ReadonlyArray<MigrationSet>,
  options: { readonly sandbox: boolean }
) {
  const { hasOwnersRights, owner, schema, tablesOwner } = yield* Roles.against(role)
  if (tablesOwner !== null && tablesOwner !== owner) {
    return yield* new DatabaseUnusable({
      variable,
      reason: `the tables belong to ${tablesOwner}, and this role is ${owner}: a superuser has to hand them over (docs/hardening.md, Roles and TLS)`
    })
  }
  const applied = yield* apply(sets)
  if (options.sandbox) yield* SandboxSchema.migrate
  if (hasOwnersRights) {
    yield* Effect.logWarning(
      `DATABASE_URL: the role ${role} has the rights of the owner ${owner}, so it may do all that ${variable} may; give the service a role of its own`
    )
  } else {
    yield* Roles.grant(role, [schema, ...(options.sandbox ? [SandboxSchema.schemaName] : [])])
  }
  return applied
})

/** {@link Migrated}, by the role of `url`, for the role of the pool. */
export const migrated = (
  url: Redacted.Redacted,
  sets: ReadonlyArray<MigrationSet>,
  options: { readonly sandbox: boolean }
) =>
  Layer.effect(
    Migrated,
    Effect.gen(function* () {
      const { role } = yield* Roles.current
      const { sockets } = yield* DatabaseSettings
      const applied = yield* prepare(role, sets, options).pipe(
        Effect.provide(
          Layer.fresh(Database.layerPatient).pipe(
            Layer.provide(DatabaseSettings.layerOf({ url, sockets, applicationName: "paid-once owner" }))
          ),
          { local: true }
        )
      )
      return { applied }
    })
  ).pipe(
    Layer.catch((error) =>
      Layer.effect(
        Migrated,
        Effect.fail(
          SqlError.isSqlError(error)
            ? new DatabaseUnusable({ variable, reason: innermost(error) })
            : error._tag === "SchemaForbidden"
              ? new DatabaseUnusable({
                  variable,
                  reason: `its role may not make the schema (${error.refusal}): the database and its tables have to be its own (docs/hardening.md, Roles and TLS)`
                })
              : error
        )
      )
    )
  )

/** The schema without an owner of its own: the role of the pool has it, or finds it as it has to be. */
export const migratedByService = (sets: ReadonlyArray<MigrationSet>, options: { readonly warnsOfSuperuser: boolean }) =>
  Migrated.layer(sets).pipe(
    Layer.provide(Database.layerPatient),
    Layer.tap(() =>
      Effect.gen(function* () {
        const { isSuperuser, role } = yield* Roles.current
        if (!isSuperuser || !options.warnsOfSuperuser) return
        yield* Effect.logWarning(
          `DATABASE_URL: the role ${role} is a superuser, so whoever takes over this process has the whole server; ` +
            `give the service a role of its own, and the schema an owner in ${variable}`
        )
      })
    )
  )
