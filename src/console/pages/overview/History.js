/** The last quarter of an hour, larger. */
import { useMemo } from "preact/hooks"
import { Chart } from "../../chart.js"
import { millis, number } from "../../format.js"
import { html } from "../../html.js"
import { live } from "../../live.js"
import { Empty, Section } from "../../parts.js"
import { useStore } from "../../store.js"

/** Told apart by dashes as well as by colour. */
const styles = /** @type {const} */ ([
  { colour: "--flow", dash: undefined },
  { colour: "--ok", dash: [6, 3] },
  { colour: "--wait", dash: [2, 3] },
  { colour: "--bad", dash: [8, 3, 2, 3] },
  { colour: "--dim", dash: [4, 4] }
])

/** Fewer points are no line. */
const enough = 3

/** The charts. */
export const History = () => {
  const samples = useStore(live, (now) => now.samples)
  const times = useMemo(() => samples.map(({ id }) => id / 1_000), [samples])
  const charts = useMemo(() => {
    const consumers = [...new Set(samples.flatMap(({ effectsPerSecond }) => Object.keys(effectsPerSecond)))].toSorted()
    const styled = (/** @type {number} */ i) => {
      const { colour, dash } = styles[i % styles.length] ?? styles[0]
      return { colour, ...(dash === undefined ? {} : { dash }) }
    }
    return [
      {
        title: "Events: published and waiting",
        format: number,
        lines: [
          {
            label: "published / s",
            ...styled(0),
            values: samples.map(({ eventsPublishedPerSecond }) => eventsPublishedPerSecond)
          },
          { label: "waiting", ...styled(2), values: samples.map(({ queued }) => queued) }
        ]
      },
      {
        title: "From commit to broker",
        format: millis,
        lines: [
          {
            label: "p99",
            ...styled(0),
            values: samples.map(({ publishLatencyMillis }) => publishLatencyMillis?.p99 ?? null)
          },
          {
            label: "p50",
            ...styled(1),
            values: samples.map(({ publishLatencyMillis }) => publishLatencyMillis?.p50 ?? null)
          }
        ]
      },
      {
        title: "Effects / s by consumer",
        format: number,
        lines: consumers.map((name, i) => ({
          label: name,
          ...styled(i),
          values: samples.map(({ effectsPerSecond }) => effectsPerSecond[name] ?? null)
        }))
      },
      {
        title: "How long the oldest waits",
        // Of a second, too.
        format: (/** @type {number} */ seconds) => millis(seconds * 1_000),
        lines: [
          {
            label: "in the outbox",
            ...styled(0),
            values: samples.map(({ oldestQueuedSeconds }) => oldestQueuedSeconds)
          },
          { label: "at a consumer", ...styled(2), values: samples.map(({ lagSecondsWorst }) => lagSecondsWorst) }
        ]
      }
    ]
  }, [samples])
  return html`<${Section} title="The last quarter of an hour">
    ${
      samples.length < enough
        ? html`<${Empty}>The service remembers while somebody looks: the lines begin now.<//>`
        : html`<p class="dim">
              From before somebody looked there is what was paid and published; the rest begins with the first look.
            </p>
            <div class="charts">
              ${charts.map(
                ({ format, lines, title }) =>
                  html`<div key=${title}>
                    <h3>${title}</h3>
                    <ul class="legend plain" aria-hidden="true">
                      ${lines.map(({ colour, dash, label }) => html`<li key=${label}><${Stroke} colour=${colour} dash=${dash} />${label}</li>`)}
                    </ul>
                    <${Chart} label=${title} times=${times} lines=${lines} format=${format} height=${150} hasAxes />
                  </div>`
              )}
            </div>`
    }
  <//>`
}

/** @param {{ readonly colour: string, readonly dash: ReadonlyArray<number> | undefined }} props */
const Stroke = ({ colour, dash }) =>
  html`<svg width="22" height="8" aria-hidden="true">
    <line
      x1="0"
      y1="4"
      x2="22"
      y2="4"
      stroke=${`var(${colour})`}
      stroke-width="2"
      stroke-dasharray=${dash?.join(" ")}
    />
  </svg>`
