/**
 * What a drill tells, step by step: plainly in a pipe; in a terminal with colour, and a line that counts the seconds of a wait. The steps are kept
 * for `--json`.
 */
import { Clock, Console, Effect, Schema } from "effect"
import { writeSync } from "node:fs"
import * as Terminal from "../Terminal.ts"

/** What happened: the drill does something, breaks or mends it, or sees what came of it. A check holds or fails. */
export type Kind = "does" | "breaks" | "sees" | "mends" | "holds" | "fails"

/** A step of a drill. */
export interface Step {
  readonly at: string
  readonly kind: Kind
  readonly what: string
  /** Where a person sees it on the console. */
  readonly look?: string
}

/** What the drill waited for did not come: the service does not do what it promises, or is too busy. */
export class DrillFailed extends Schema.TaggedError<DrillFailed>()("DrillFailed", { reason: Schema.String }) {
  override get message() {
    return this.reason
  }
}

/** Far above what anything here takes on a slow machine: a lane moves after five seconds, and a gateway is silent for as long. */
const waitMillis = 120_000

/** A person sees the figures move, and the database is hardly asked. */
const pollMillis = 200

const signs: Readonly<Record<Kind, readonly [sign: string, tone: Terminal.Tone | undefined]>> = {
  does: ["·", undefined],
  breaks: ["✗ break:", "red"],
  sees: ["· see:", "yellow"],
  mends: ["✓ mend:", "green"],
  holds: ["✓", "green"],
  fails: ["✗", "red"]
}

/** A teller for one drill. With `isQuiet` nothing is printed. */
export const make = ({ isQuiet }: { readonly isQuiet: boolean }) => {
  const terminal = Terminal.current()
  const steps: Array<Step> = []
  const isLive = !isQuiet && terminal.width !== undefined

  /** The line of a wait, which the next one overwrites. */
  const progress = (text: string) =>
    Effect.sync(() => void writeSync(1, `\r\u001B[2K${text.slice(0, (terminal.width ?? 80) - 1)}`))

  const tell = (kind: Kind, what: string, look?: string) =>
    Effect.gen(function* () {
      const at = new Date(yield* Clock.currentTimeMillis).toISOString()
      steps.push(look === undefined ? { at, kind, what } : { at, kind, what, look })
      if (isQuiet) return
      const [sign, tone] = signs[kind]
      yield* Console.log(`  ${tone === undefined ? sign : Terminal.toned(sign, tone, terminal)} ${what}`)
      if (look !== undefined) yield* Console.log(`      ${Terminal.toned(look, "dim", terminal)}`)
    })

  return {
    steps: steps as ReadonlyArray<Step>,
    tell,
    /** Waits until it is so. `now` says how far it is. Fails after two minutes, with what it waited for. */
    until: Effect.fnUntraced(function* <E, R>(
      what: string,
      isSo: Effect.Effect<boolean, E, R>,
      now: () => string = () => ""
    ): Effect.fn.Return<void, E | DrillFailed, R> {
      const begun = yield* Clock.currentTimeMillis
      while (!(yield* isSo)) {
        const waited = (yield* Clock.currentTimeMillis) - begun
        if (waited > waitMillis)
          return yield* new DrillFailed({ reason: `waited ${waitMillis / 1_000} s for ${what}${now()}` })
        if (isLive) yield* progress(`  … waiting for ${what}, ${Math.floor(waited / 1_000)} s${now()}`)
        yield* Effect.sleep(pollMillis)
      }
      if (isLive) yield* progress("")
    })
  }
}

export type Teller = ReturnType<typeof make>
