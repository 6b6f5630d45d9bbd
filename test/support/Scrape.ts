/** What a service answers on `/metrics`, read as Prometheus reads it. */
import { Effect } from "effect"

/** The text of a scrape. */
export const scrape = (service: { readonly url: string | null }): Effect.Effect<string> =>
  Effect.promise(async () => (await fetch(`${service.url}/metrics`)).text())

/** A series: its name, its labels, and its value. */
export interface Series {
  readonly name: string
  readonly labels: Readonly<Record<string, string>>
  readonly value: number
}

/** All series of a scrape. */
export const seriesOf = (text: string): ReadonlyArray<Series> =>
  text
    .split("\n")
    .filter((line) => line !== "" && !line.startsWith("#"))
    .map((line) => {
      const [, name = "", labels = "", value = ""] = /^(\w+)(?:\{(.*)\})? (\S+)$/.exec(line)!
      const pairs = [...labels.matchAll(/(\w+)="((?:\\.|[^"\\])*)"/g)].map(([, key, text]) => [key!, text!] as const)
      return { name, labels: Object.fromEntries(pairs), value: Number(value) }
    })

/** A series as PromQL writes it, its labels in the order of their names. */
export const written = ({ labels, name }: Pick<Series, "name" | "labels">): string => {
  const pairs = Object.keys(labels)
    .toSorted()
    .map((key) => `${key}="${labels[key]}"`)
  return pairs.length === 0 ? name : `${name}{${pairs.join(",")}}`
}
