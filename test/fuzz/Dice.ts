/** Random draws from a seed: the same seed draws the same. */
import { randomOf } from "../lab/Actor.ts"

export interface Dice {
  /** A whole number from 0 to `below` - 1. */
  readonly int: (below: number) => number
  readonly chance: (share: number) => boolean
  readonly pick: <A>(list: ReadonlyArray<A>) => A
}

export const diceOf = (seed: number): Dice => {
  const random = randomOf(seed)
  const int = (below: number) => Math.floor(random() * below)
  return { int, chance: (share) => random() < share, pick: (list) => list[int(list.length)]! }
}
