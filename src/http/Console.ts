/**
 * The console's files, for anybody: they are public source. Its data is under /admin, which needs a credential.
 *
 * All files are read once, at the start. A request's path is looked up among their names, and never reaches the file system. The page routes by path in the
 * browser, so it answers every path below /console that no file has.
 */
import { Context, Effect } from "effect"
import { HttpRouter, HttpServerRequest, HttpServerResponse } from "effect/http"
import { createHash } from "node:crypto"
import { existsSync, readdirSync, readFileSync } from "node:fs"
import { createRequire } from "node:module"
import * as Path from "node:path"
import { gzipSync } from "node:zlib"
import * as SecurityHeaders from "./access/SecurityHeaders.ts"
import { nowhere } from "./Observe.ts"
import { toResponse } from "./Problems.ts"

export const consolePath = "/console"

/** Settings of the console. */
export const ConsoleSettings = Context.Reference<{
  /** The origin of a demo's control (cli/demo/Control.ts); undefined for any service that no demo has started. */
  readonly demoControlUrl: string | undefined
}>("paid-once/http/ConsoleSettings", { defaultValue: () => ({ demoControlUrl: undefined }) })

const room = Path.resolve(import.meta.dirname, "../console")

/** What to do about an alert or a wait: the pages of the console that are written as text. */
const runbooks = Path.resolve(import.meta.dirname, "../../docs/runbooks")
const pageName = "index.html"

const contentTypes: Readonly<Record<string, string>> = {
  ".css": "text/css; charset=utf-8",
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".mjs": "text/javascript; charset=utf-8",
  ".svg": "image/svg+xml"
}

/** Modules and styles out of packages: each lies beside the file that its package's name leads to. */
const vendor = [
  ["preact", "preact.mjs"],
  ["preact/hooks", "hooks.mjs"],
  ["htm", "htm.mjs"],
  ["uplot", "uPlot.esm.js"],
  ["uplot", "uPlot.min.css"]
] as const

/** A file as it is sent. */
interface File {
  readonly plain: Uint8Array
  readonly zipped: Uint8Array
  readonly contentType: string
  readonly etag: string
  readonly headers: Readonly<Record<string, string>>
}

/**
 * The page runs this service's files and its own import map, and asks this service. No text becomes markup or a script: `require-trusted-types-for`
 * makes the browser refuse code that would do so, such as a write to innerHTML.
 */
const policyOf = (page: string, demoControlUrl: string | undefined): string =>
  [
    "default-src 'none'",
    `script-src ${["'self'", ...importMaps(page).map(SecurityHeaders.hashSource)].join(" ")}`,
    "style-src 'self'",
    "img-src 'self' data:",
    `connect-src 'self'${demoControlUrl === undefined ? "" : ` ${demoControlUrl}`}`,
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
    "trusted-types 'none'"
  ].join("; ")

const importMaps = (page: string) =>
  [...page.matchAll(/<script type="importmap">([^]*?)<\/script>/g)].map(([, text = ""]) => text)

const fileOf = (name: string, plain: Uint8Array, demoControlUrl?: string): File => {
  const extension = Path.extname(name)
  return {
    plain,
    zipped: gzipSync(plain),
    contentType: contentTypes[extension] ?? "application/json",
    etag: createHash("sha256").update(plain).digest("base64url"),
    headers: {
      // Asked for anew each time, and answered 304 until a new release of the service.
      "cache-control": "no-cache",
      vary: "accept-encoding",
      ...(extension === ".html"
        ? {
            "content-security-policy": policyOf(new TextDecoder().decode(plain), demoControlUrl),
            // A page of another site that opens the console in a window can't look into it.
            "cross-origin-opener-policy": "same-origin"
          }
        : {})
    }
  }
}

/** The text of each runbook by its name. A copy of the service without its docs takes orders, and has none. */
const readRunbooks = () =>
  Object.fromEntries(
    (existsSync(runbooks) ? readdirSync(runbooks) : [])
      .filter((name) => name.endsWith(".md"))
      .map((name) => [Path.basename(name, ".md"), readFileSync(Path.join(runbooks, name), "utf8")])
  )

const read = () => {
  const { resolve } = createRequire(import.meta.url)
  const own = readdirSync(room, { recursive: true, encoding: "utf8" })
    .filter((name) => Path.extname(name) in contentTypes)
    .map((name) => [name.split(Path.sep).join("/"), Path.join(room, name)] as const)
  const others = vendor.map(([name, file]) => [`vendor/${file}`, Path.join(Path.dirname(resolve(name)), file)] as const)
  const texts = new Map([...own, ...others].map(([name, path]) => [name, readFileSync(path)]))
  const text = texts.get(pageName)
  if (text === undefined) throw new Error(`${Path.join(room, pageName)} is missing: the console has no page`)
  texts.delete(pageName)
  texts.set("runbooks.json", Buffer.from(JSON.stringify(readRunbooks())))
  return { files: new Map([...texts].map(([name, plain]) => [name, fileOf(name, plain)])), text }
}

/** Read by the first server of the process. */
let site: ReturnType<typeof read> | undefined

/** RFC 9110, section 12.5.3, as far as browsers use it: gzip is taken unless its weight is 0. */
const takesGzip = (accepted: string | undefined): boolean =>
  (accepted ?? "").split(",").some((coding) => /^\s*gzip\s*(?:;\s*q\s*=\s*(?!0(?:\.0*)?\s*$).*)?$/i.test(coding))

const send = (file: File, { headers }: HttpServerRequest.HttpServerRequest) => {
  const isZipped = takesGzip(headers["accept-encoding"])
  // Each form of a file has a tag of its own, as caches compare tags byte for byte.
  const etag = `"${file.etag}${isZipped ? "-gzip" : ""}"`
  const known = (headers["if-none-match"] ?? "").split(",").map((tag) => tag.trim().replace(/^W\//, ""))
  // A browser takes the headers of a 304 over: it has the same policy as the page.
  if (known.includes(etag)) return HttpServerResponse.empty({ status: 304, headers: { ...file.headers, etag } })
  return HttpServerResponse.uint8Array(isZipped ? file.zipped : file.plain, {
    contentType: file.contentType,
    headers: { ...file.headers, etag, ...(isZipped ? { "content-encoding": "gzip" } : {}) }
  })
}

/** The name of a file, or of a page, below /console; undefined where no link of ours leads to such a path. */
const nameIn = (url: string): string | undefined => {
  // The target may have a host of its own.
  const path = url
    .replace(/^[a-z][a-z0-9+.-]*:\/\/[^/]*/i, "")
    .split(/[?#]/, 1)[0]!
    .slice(consolePath.length + 1)
  try {
    const name = decodeURIComponent(path)
    return /(?:^|[/\\])\.{1,2}(?:[/\\]|$)|[\\\0]/.test(name) ? undefined : name
  } catch {
    return undefined
  }
}

/** Adds the console, and the way to it from the service's root. */
export const layer = HttpRouter.use(
  Effect.fnUntraced(function* (router) {
    const { files, text } = yield* Effect.sync(() => (site ??= read()))
    const page = fileOf(pageName, text, (yield* ConsoleSettings).demoControlUrl)

    const answer = (request: HttpServerRequest.HttpServerRequest) => {
      const name = nameIn(request.url)
      const file = name === undefined ? undefined : files.get(name)
      if (file !== undefined) return send(file, request)
      // A missing module must not be the page, which the browser would take for a module with a mistake.
      const isFile = name === undefined || Path.extname(name) in contentTypes || name.endsWith(".map")
      return isFile ? toResponse(nowhere()) : send(page, request)
    }
    // The router takes this for /console itself, too.
    yield* router.add("GET", `${consolePath}/*`, (request) => Effect.succeed(answer(request)))
    // A person who opens the service's address wants to see something. A program has asked for a path that is none.
    yield* router.add("GET", "/", ({ headers }) =>
      Effect.succeed(
        /\btext\/html\b/i.test(headers["accept"] ?? "")
          ? HttpServerResponse.redirect(consolePath, { status: 303 })
          : toResponse(nowhere())
      )
    )
  })
)
