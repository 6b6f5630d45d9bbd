/**
 * The documentation's page. Swagger's script and style are in it, and it loads nothing from other servers; Scalar's would fetch fonts and
 * report usage.
 */
import { Effect, Layer, Semaphore } from "effect"
import { HttpRouter, HttpServerResponse } from "effect/http"
import { type HttpApi, type HttpApiGroup, HttpApiSwagger } from "effect/http-api"
import { gzipSync } from "node:zlib"
import { hashSource } from "./access/SecurityHeaders.ts"

/** The sources of CSP for the inline elements with this tag: the SHA-256 of each one's text. A block of data is not run, and needs none. */
const hashesOf = (html: string, tag: "script" | "style"): string =>
  [...html.matchAll(new RegExp(`<${tag}>([^]*?)</${tag}>`, "g"))].map(([, text = ""]) => hashSource(text)).join(" ")

/**
 * The page may run its own script, use its own style, and ask its own server ("Try it out"). Swagger draws with icons that are
 * `data:` URLs and with `style` attributes; an attribute runs nothing.
 */
const policyOf = (html: string): string =>
  [
    "default-src 'none'",
    `script-src ${hashesOf(html, "script")}`,
    `style-src ${hashesOf(html, "style")}`,
    "style-src-attr 'unsafe-inline'",
    "img-src 'self' data:",
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'"
  ].join("; ")

const compress = (html: Uint8Array) =>
  HttpServerResponse.uint8Array(gzipSync(html), {
    contentType: "text/html; charset=utf-8",
    headers: { "content-encoding": "gzip", "content-security-policy": policyOf(new TextDecoder().decode(html)) }
  })

/** Adds the page. */
export const layer = <Id extends string, Groups extends HttpApiGroup.Constraint>(
  api: HttpApi.HttpApi<Id, Groups>,
  path: `/${string}`
) =>
  HttpRouter.use(
    Effect.fnUntraced(function* (router) {
      const scope = yield* Effect.scope
      // The page never changes: it is compressed once, to a fourth of its two megabytes. Every browser reads that. There is no plain one for
      // those who refuse it, as anybody may ask for the page, and its bytes are what it costs.
      let page: HttpServerResponse.HttpServerResponse | undefined
      // Swagger's layer loads its script, which takes 7 MB for ever: not before somebody asks for the page. It adds the page to a router, so it gets one
      // of its own.
      const oneByOne = yield* Semaphore.make(1)
      const making = Effect.gen(function* () {
        if (page !== undefined) return page
        const own = yield* HttpRouter.make
        const swagger = HttpApiSwagger.layer(api, { path })
        yield* Layer.buildWithScope(Layer.provide(swagger, Layer.succeed(HttpRouter.HttpRouter, own)), scope)
        const { body } = yield* Effect.orDie(own.asHttpEffect())
        return (page = compress(body._tag === "Uint8Array" ? body.body : new Uint8Array()))
      })
      yield* router.add(
        "GET",
        path,
        Effect.suspend(() => (page === undefined ? oneByOne.withPermit(making) : Effect.succeed(page)))
      )
    })
  )
