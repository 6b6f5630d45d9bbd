/**
 * The names that an operator can ask for. Any other is refused, with the known ones: nothing found for a name that is misspelt would pass for
 * good news.
 */
import { Context, Effect, Layer } from "effect"
import { badRequest, type FieldError, Problem } from "../Problems.ts"

/** The kinds of named things. */
export type Kind = "topic" | "consumer" | "task type"

/** The topics, consumers and types of task of this version. Rows of an older one are listed, and can't be asked for by name. */
export class KnownNames extends Context.Service<
  KnownNames,
  {
    readonly names: Readonly<Record<Kind, ReadonlyArray<string>>>
    /** Fails with 404 where a path has an unknown name. */
    readonly inPath: (kind: Kind, name: string) => Effect.Effect<void, Problem>
    /** Fails with 400 where the field of a filter has an unknown name. A filter without one is as good. */
    readonly inFilter: (
      kind: Kind,
      field: Pick<FieldError, "in" | "pointer">,
      name: string | undefined
    ) => Effect.Effect<void, Problem>
  }
>()("paid-once/http/admin/KnownNames") {
  static readonly layer = (names: Readonly<Record<Kind, ReadonlyArray<string>>>): Layer.Layer<KnownNames> => {
    return Layer.succeed(
      KnownNames,
      KnownNames.of({
        names,
        inPath: (kind, name) =>
          names[kind].includes(name)
            ? Effect.void
            : Effect.fail(
                new Problem({ status: 404, detail: `there is no ${kind} ${name}: they are ${names[kind].join(", ")}` })
              ),
        inFilter: (kind, field, name) =>
          name === undefined || names[kind].includes(name)
            ? Effect.void
            : Effect.fail(badRequest([{ ...field, message: `must be one of ${names[kind].join(", ")}` }]))
      })
    )
  }
}
