/** Is money moving? One sentence, and what waits with what frees it. */
import { useEffect, useState } from "preact/hooks"
import { duration } from "../../format.js"
import { html } from "../../html.js"
import { live } from "../../live.js"
import { Copy, Sentence, State, Time } from "../../parts.js"
import { useStore } from "../../store.js"

/** The verdict of now; while the service does not answer, that is the verdict. */
export const Verdict = () => {
  const connection = useStore(live, (now) => now.connection)
  const at = useStore(live, ({ overview }) => overview?.at)
  const verdict = useStore(live, ({ overview, trouble }) => (trouble ?? overview)?.verdict)
  const isTrouble = useStore(live, ({ trouble }) => trouble !== undefined)
  const [isLate, setLate] = useState(false)
  useEffect(() => {
    // At the start a moment passes before the first figures come.
    const timer = setTimeout(() => setLate(true), 3_000)
    return () => clearTimeout(timer)
  }, [])
  if (connection === "stale" || (verdict === undefined && isLate))
    return html`<section class="card verdict unready" aria-labelledby="verdict">
      <div class="row">
        <h2 id="verdict">The service does not answer.</h2>
        <${State} of="lost" text="not live" />
      </div>
      <p>
        ${at === undefined ? "There are no figures yet." : html`What is shown below was so at <${Time} at=${at} />.`}
        ${" "}Orders may be taken or not: this page can't tell. It keeps trying.
      </p>
    </section>`
  if (verdict === undefined) return null
  return html`<section class=${`card verdict ${verdict.status}`} aria-labelledby="verdict">
    <div class="row">
      <h2 id="verdict">${verdict.sentence}</h2>
      <${State} of=${verdict.status} />
    </div>
    ${isTrouble && at !== undefined ? html`<p>The figures below are those of <${Time} at=${at} />: newer ones can't be read now.</p>` : null}
    ${
      verdict.waits.length === 0
        ? null
        : html`<ul class="waits">
            ${verdict.waits.map(
              ({ frees, runbook, sinceSeconds, what }) =>
                html`<li key=${what}>
                  <p>
                    <strong><${Sentence} text=${what} /></strong
                    >${sinceSeconds === null ? null : html`<span class="figure">, for ${duration(sinceSeconds)}</span>`}
                  </p>
                  <p class="dim">
                    ${frees === "" ? null : html`Frees it: ${frees.startsWith("paid-once ") ? html`<span class="id"><code>${frees}</code><${Copy} text=${frees} what="command" /></span>` : html`<${Sentence} text=${frees} goesOn />`}.`}
                    ${runbook === null ? null : html`${" "}Runbook: <a href=${`/console/runbooks/${runbook}`}>${runbook}</a>`}
                  </p>
                </li>`
            )}
          </ul>`
    }
  </section>`
}
