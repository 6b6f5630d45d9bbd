/** The pages of test/mistakes: each planted mistake with the shortest story that catches it. */
import { existsSync } from "node:fs"
import { readFile } from "node:fs/promises"
import * as Path from "node:path"
import type { Mistake } from "./mistakes/Mistake.ts"
import type { Outcome } from "./Scheduler.ts"

const directory = Path.resolve(import.meta.dirname, "../mistakes")

export const tokensPath = Path.join(import.meta.dirname, "mistakes", "tokens.json")
export const pathOf = (mistake: Mistake): string => Path.join(directory, `${mistake.name}.md`)

/** The stored tokens by mistake. */
export const readTokens = async (): Promise<Readonly<Record<string, string>>> =>
  existsSync(tokensPath) ? (JSON.parse(await readFile(tokensPath, "utf8")) as Readonly<Record<string, string>>) : {}

/** The page. It is made from the code and the story alone, so a test can tell whether the stored one is current. */
export const pageOf = (mistake: Mistake, token: string, { story, violation }: Outcome): string =>
  `# ${mistake.name}

**The mistake.** ${mistake.what}

**Why it looks right.** ${mistake.why}

**How it breaks.** The shortest story that the lab found. \`A2\` is version 2 of order A's events; the lines beneath a
step show what was stored after it.

\`\`\`text
${story.print(violation)}
\`\`\`

**The rule.** ${mistake.rule} Read \`${mistake.read}\`.

See it again: \`npm run replay -- ${token}\`.
Written by \`npm run mistakes -- --write\`.
`
