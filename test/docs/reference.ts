/**
 * docs/reference.md and .env.example, generated from the code: `npm run reference` writes them, and Reference.test.ts compares the files
 * with the generated text. Their descriptions are the docstrings beside each variable, metric and command.
 */
import { ConfigProvider, Effect } from "effect"
import { execFile } from "node:child_process"
import { readdirSync, readFileSync, writeFileSync } from "node:fs"
import * as Path from "node:path"
import { promisify, stripVTControlCharacters } from "node:util"
import * as Config from "../../src/Config.ts"

const root = Path.resolve(import.meta.dirname, "../..")
const run = promisify(execFile)

const sources = readdirSync(Path.join(root, "src"), { recursive: true, encoding: "utf8" })
  .filter((name) => name.endsWith(".ts"))
  .toSorted()
  .map((name) => readFileSync(Path.join(root, "src", name), "utf8"))

/** A docstring's text in one line, without links. */
const proseOf = (comment: string) =>
  comment
    .replaceAll(/^\s*\/?\*+\/?/gm, "")
    .replaceAll("*/", "")
    .replaceAll(/\{@link (\w+)\}/g, "`$1`")
    .replaceAll(/\s+/g, " ")
    .trim()

/** The arguments of a call, from its opening parenthesis on. */
const argumentsOf = (text: string): ReadonlyArray<string> => {
  const parts: Array<string> = []
  let depth = 0
  let quote = ""
  let part = ""
  for (let index = 1; index < text.length; index++) {
    const char = text[index]!
    if (quote !== "") {
      part += char
      if (char === "\\") part += text[++index] ?? ""
      else if (char === quote) quote = ""
      continue
    }
    if (char === '"' || char === "`" || (char === "/" && /[(,]\s*$/.test(part === "" ? "(" : part))) quote = char
    if (")]}".includes(char) && depth-- === 0) break
    if ("([{".includes(char)) depth++
    if (char === "," && depth === 0) {
      parts.push(part.trim())
      part = ""
    } else part += char
  }
  return [...parts, part.trim()].filter((one) => one !== "")
}

/** The allowed values of a variable, from the parser that reads it. */
const allowedOf = (parser: string): string => {
  const range = /^integer\(([\d_]+), ([\d_]+)\)$/.exec(parser)
  if (range !== null) return `${range[1]!.replaceAll("_", "")} … ${range[2]!.replaceAll("_", "")}`
  if (parser.startsWith("oneOf(")) return parser.slice(6, -1).replaceAll('"', "`")
  const known: Readonly<Record<string, string>> = {
    onOff: "`on`, `off`",
    millis: "milliseconds",
    duration: "a duration: `30s`, `5m`, `24h`, `1d`",
    durations: "durations, comma separated",
    postgresUrl: "a postgres:// URL",
    brokers: "`host:port`, comma separated",
    faults: "`on`, or `point=action[:times]` or `point=delay:times:millis`, comma separated",
    ownPort: "`http://127.0.0.1:PORT`",
    certificateFile: "path of a PEM file",
    keyFile: "path of a PEM file",
    headers: "`name=value`, comma separated",
    secrets: "16 to 200 characters without spaces and commas; up to three, comma separated",
    httpBase: "an `http://` or `https://` URL without a query; user and password in it are sent as Basic credentials",
    httpAddress: "an `http://` or `https://` URL; user and password in it are sent as Basic credentials",
    smtpUrl: "`smtp://` or `smtps://`, host and port",
    mailAddress: "a mail address",
    mailHost: "a host name",
    "ApiKeys.parse": "`name:scope:sha256`, comma separated, as `paid-once api-key` prints them",
    adminToken: "16 to 200 ASCII characters without spaces",
    publicHosts: "hosts, with or without a port, comma separated",
    rateLimit: "`off`, or requests in a time: `600/1m`"
  }
  if (known[parser] !== undefined) return known[parser]
  // The sentence of the parser's own error.
  return /"([^"]+)"(?!.*")/s.exec(parser)?.[1] ?? ""
}

const durationOf = (millis: number): string => {
  const units = [86_400_000, 3_600_000, 60_000, 1_000] as const
  const index = units.findIndex((unit) => millis % unit === 0)
  return index < 0 ? `${millis}ms` : `${millis / units[index]!}${"dhms"[index]}`
}

/** A default as the environment would contain it. */
const defaultOf = (value: unknown, parser: string): string => {
  if (value === undefined || value === "" || (typeof value === "object" && Object.keys(value ?? {}).length === 0))
    return "–"
  if (typeof value === "boolean") return value ? "`on`" : "`off`"
  if (Array.isArray(value)) return `\`${value.map(Number).map(durationOf).join(",")}\``
  if (typeof value === "string" && value.startsWith(root)) return `\`${Path.relative(root, value)}\` in the checkout`
  return `\`${parser === "duration" ? durationOf(Number(value)) : JSON.stringify(value).replaceAll('"', "")}\``
}

interface VariableRow {
  readonly name: string
  readonly fallback: string
  readonly allowed: string
  readonly prose: string
}

const variables = async (): Promise<ReadonlyArray<VariableRow>> => {
  const text = readFileSync(Path.join(root, "src/Config.ts"), "utf8")
  const defaults: Readonly<Record<string, unknown>> = await Effect.runPromise(
    Effect.provideService(Config.load, ConfigProvider.ConfigProvider, ConfigProvider.fromUnknown({}))
  )
  const found = [...text.matchAll(/(\/\*\*(?:(?!\*\/)[^])*\*\/\s*)?\n\s*(\w+): variable(?:<[^]*?>)?(?=\(\s*"[A-Z])/g)]
  return found.map((match) => {
    const [name = "", parser = "", , options = ""] = argumentsOf(text.slice(match.index + match[0].length))
    const secret = options.includes("secret: true") ? " Secret." : ""
    return {
      name: name.replaceAll('"', ""),
      fallback: defaultOf(defaults[match[2]!], parser),
      allowed: allowedOf(parser),
      prose: proseOf(match[1] ?? "") + secret
    }
  })
}

/** `.env.example`: each variable with its default, commented out. */
export const environment = async (): Promise<string> => {
  const blocks = (await variables()).map(({ allowed, fallback, name, prose }) => {
    const text = `${prose}${allowed === "" ? "" : ` Allowed: ${allowed}.`}`.trim().replaceAll("`", "")
    const lines = (text.match(/.{1,118}(?:\s|$)/g) ?? []).map((line) => `# ${line.trimEnd()}`)
    return [...lines, `#${name}=${/`(.*?)`/.exec(fallback)?.[1] ?? ""}`].join("\n")
  })
  return `# Every variable with its default. Made from the code by \`npm run reference\`; a test holds it.
#
# Copy it to .env, which git ignores, take the # away from what you set, and load it: node --env-file=.env src/paid-once.js serve

${blocks.join("\n\n")}
`
}

/** `src/VariableDescriptions.ts`: what the service itself tells of its variables. */
export const descriptions = async (): Promise<string> => {
  const lines = (await variables()).map(({ allowed, name, prose }) => {
    const text = JSON.stringify(`${prose}${allowed === "" ? "" : ` Allowed: ${allowed}.`}`.trim())
    // As the formatter breaks lines: the text of a name of up to four letters stays beside it.
    return name.length > 4 && `  ${name}: ${text},`.length > 120 ? `  ${name}:\n    ${text}` : `  ${name}: ${text}`
  })
  return `/** What each variable is for. Made from the docstrings of \`Config.ts\` by \`npm run reference\`; a test holds it. */
export const variableDescriptions: Readonly<Record<string, string>> = {
${lines.join(",\n")}
}
`
}

const metricRow = (kind: string, name: string, labels: ReadonlySet<string>, description: string): string =>
  `| \`${labels.size === 0 ? name : `${name}{${[...labels].join(",")}}`}\` | ${kind} | ${description.slice(1, -1)} |`

/** Metrics whose series are made one by one (MetricSeries.ts). */
const seriesIn = (source: string): ReadonlyArray<string> =>
  [
    ...source.matchAll(
      /Metric\.(counter|gauge|histogram)\(\s*"(\w+)",\s*\{\s*description:\s*("[^"]*"|`[^`]*`)[^]*?attributes\s*\}\),\s*\[([^\]]*)\]/g
    )
  ]
    .filter(({ index }) => /=>\s*$/.test(source.slice(0, index)))
    .map(([, kind, name, description, labels]) =>
      metricRow(kind!, name!, new Set([...labels!.matchAll(/"(\w+)"/g)].map(([, label]) => label!)), description!)
    )

const metrics = (): ReadonlyArray<string> =>
  sources
    .flatMap((source) => [
      ...seriesIn(source),
      ...[
        ...source.matchAll(
          /const (\w+) = Metric\.(counter|gauge|histogram)\(\s*"(\w+)",\s*\{\s*description:\s*("[^"]*"|`[^`]*`)/g
        )
      ].map(([, variable, kind, name, description]) => {
        const users = source.includes(`export const ${variable}`) ? sources : [source]
        // The metric itself, wherever it is used, or the file's helper that sets any of its gauges.
        const uses = new RegExp(`(?:withAttributes|seriesOf)\\(\\s*${variable},\\s*[{[]([^}\\]]*)[}\\]]`, "g")
        const helped = kind === "gauge" ? /withAttributes\(gauge, \{([^}]*)\}/g : /$^/g
        const labels = new Set(
          [...users.flatMap((one) => [...one.matchAll(uses)]), ...source.matchAll(helped)].flatMap((match) =>
            match[1]!
              .split(",")
              .map((one) => one.trim().split(":")[0]!.trim().replaceAll('"', ""))
              .filter((one) => /^\w+$/.test(one))
          )
        )
        return metricRow(kind!, name!, labels, description!)
      })
    ])
    .toSorted()

const faultPoints = (): ReadonlyArray<string> =>
  [
    ...new Set(
      sources.flatMap((source) =>
        [...source.matchAll(/faults\s*\.(?:at|around)\(\s*"([^"]+)"/g)].map((match) => match[1]!)
      )
    )
  ].toSorted()

/** The output of `paid-once … --help`, without the flags that every command has. */
const help = async (command: ReadonlyArray<string>): Promise<string> => {
  const { stdout } = await run(process.execPath, [Path.join(root, "src/paid-once.js"), ...command, "--help"], {
    env: { ...process.env, NO_COLOR: "1" }
  })
  return stripVTControlCharacters(stdout)
    .replace(/\nGLOBAL FLAGS\n[^]*?(?=\n[A-Z]+\n|$)/, "")
    .trimEnd()
}

/** The names under SUBCOMMANDS of a help text. */
const subcommandsOf = (text: string): ReadonlyArray<string> =>
  [...(/^SUBCOMMANDS\n((?: .*\n?)*)/m.exec(text)?.[1] ?? "").matchAll(/^ {2}([a-z]\S*)/gm)].map((match) => match[1]!)

/** A command's help and its subcommands', in order. */
const commands = async (path: ReadonlyArray<string>): Promise<ReadonlyArray<string>> => {
  const text = await help(path)
  const below: Array<string> = []
  for (const name of subcommandsOf(text)) below.push(...(await commands([...path, name])))
  return path.length === 0 ? below : [`### ${path.join(" ")}\n\n\`\`\`\n${text}\n\`\`\``, ...below]
}

/** The whole page. */
export const reference = async (): Promise<string> => `# Reference

Made from the code by \`npm run reference\`; a test holds it. Edit the docstrings, not this page.

## Commands

\`npm start\` is \`paid-once serve\`. Everything else: \`npm run paid-once -- COMMAND\`. Exit status: 0 fine, 1 problems found, 2 wrong usage, 130 or 143
interrupted by SIGINT or SIGTERM before the command had finished. A service that a signal stops cleanly exits with 0.

${(await commands([])).join("\n\n")}

## Variables

A wrong value stops the start with one line that names the variable, the value and what is allowed.

| variable | default | allowed | |
|---|---|---|---|
${(await variables()).map(({ allowed, fallback, name, prose }) => `| \`${name}\` | ${fallback} | ${allowed} | ${prose} |`).join("\n")}

## Metrics

\`GET /metrics\`, in Prometheus' text format. Figures that need a query are sampled every five seconds; a scrape runs no query.
Counters and histograms are there at 0 from the start, but for those of requests. A gauge is there with its first sample.

| metric | kind | |
|---|---|---|
${metrics().join("\n")}

## Fault points

Set by \`FAULTS=point=action[:times]\`, or \`FAULTS=point=delay:times:millis\`. Actions: \`crash\` (SIGKILL to itself), \`fail\`,
\`delay\`, and at \`dispatcher.before-publish\` also \`duplicate\` and \`lose-ack\`. A fault that is set or strikes is a line in the log.

${faultPoints()
  .map((point) => `- \`${point}\``)
  .join("\n")}
`

export const path = Path.join(root, "docs/reference.md")
export const environmentPath = Path.join(root, ".env.example")
export const descriptionsPath = Path.join(root, "src/VariableDescriptions.ts")

if (process.argv[1] === import.meta.filename) {
  writeFileSync(environmentPath, await environment())
  writeFileSync(descriptionsPath, await descriptions())
  writeFileSync(path, await reference())
}
