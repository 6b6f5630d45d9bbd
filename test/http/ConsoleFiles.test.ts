/** The console's files: the paths that are served, their headers, and the policy of the page. */
import { assert, layer } from "@effect/vitest"
import { Context, Effect, type Exit, Layer, Result, Tracer } from "effect"
import { createHash } from "node:crypto"
import { readdirSync, readFileSync } from "node:fs"
import * as Path from "node:path"
import { gunzipSync } from "node:zlib"
import * as ApiKeys from "../../src/http/access/ApiKeys.ts"
import { AccessSettings } from "../../src/http/access/Credentials.ts"
import { ConsoleSettings } from "../../src/http/Console.ts"
import * as HttpServer from "../../src/http/HttpServer.ts"
import * as RequestContext from "../../src/http/RequestContext.ts"
import { sendRaw } from "../support/RawHttp.ts"
import { TestDatabase } from "../support/TestDatabase.ts"
import { anyPort, underHttpOn } from "./Service.ts"

const room = Path.resolve(import.meta.dirname, "../../src/console")
const page = readFileSync(Path.join(room, "index.html"), "utf8")
const keys = Result.getOrThrow(ApiKeys.parse(ApiKeys.draw("desk", "operator").entry))

/** What a collector would get. */
const spans: Array<Record<string, unknown>> = []
const tracer = Tracer.make({
  span: (options) => {
    const attributes = new Map<string, unknown>()
    return {
      ...options,
      _tag: "Span",
      spanId: "0123456789abcdef",
      traceId: "0123456789abcdef0123456789abcdef",
      sampled: true,
      status: { _tag: "Started", startTime: options.startTime },
      attributes,
      attribute: (key: string, value: unknown) => void attributes.set(key, value),
      event: () => {},
      addLinks: () => {},
      end: (_endTime: bigint, _exit: Exit.Exit<unknown, unknown>) =>
        void spans.push({ name: options.name, ...Object.fromEntries(attributes) })
    }
  }
})

const service = HttpServer.layer.pipe(
  Layer.provide(Layer.succeed(HttpServer.HttpSettings, anyPort)),
  // The files are for anybody, also where callers need keys.
  Layer.provide(Layer.succeed(AccessSettings, { keys })),
  // Requests have the tracer that is below.
  Layer.provide(Layer.fresh(RequestContext.layer)),
  Layer.provide(Layer.succeed(Tracer.Tracer, tracer)),
  Layer.provideMerge(underHttpOn(TestDatabase.layer))
)

const ask = (path: string, lines: ReadonlyArray<string> = [], method = "GET") =>
  Effect.flatMap(HttpServer.BoundAddress, ({ port }) =>
    sendRaw(port, [`${method} ${path} HTTP/1.1`, `Host: 127.0.0.1:${port}`, ...lines])
  )

const types: Readonly<Record<string, string>> = {
  ".js": "text/javascript; charset=utf-8",
  ".mjs": "text/javascript; charset=utf-8",
  ".css": "text/css; charset=utf-8",
  ".svg": "image/svg+xml"
}

const ownFiles = readdirSync(room, { recursive: true, encoding: "utf8" }).filter((name) => Path.extname(name) in types)
const vendorFiles = ["preact.mjs", "hooks.mjs", "htm.mjs", "uPlot.esm.js", "uPlot.min.css"].map(
  (name) => `vendor/${name}`
)
const files = [...ownFiles, ...vendorFiles].map((name) => `/console/${name}`)

/** The paths that a text of the console loads: in the page, in its import map, and by modules and styles. */
const loadedBy = (path: string, text: string): ReadonlyArray<string> =>
  [
    ...text.matchAll(/(?:src|href)="([^"]+)"/g),
    ...text.matchAll(/"(\/console\/[^"]+)"/g),
    ...text.matchAll(/^(?:import|export)[^"';]*?from\s*["']([^"']+)["']/gm),
    ...text.matchAll(/\bimport\(\s*["']([^"']+)["']/g),
    ...text.matchAll(/@import\s+(?:url\()?["']([^"']+)["']/g)
  ]
    .map(([, to = ""]) => to)
    .filter((to) => to.startsWith(".") || to.startsWith("/"))
    .map((to) => new URL(to, `http://x${path}`).pathname)

layer(service, { excludeTestServices: true })("the console's files", (it) => {
  it.effect("each is served with its type, and with the bytes of the file", () =>
    Effect.gen(function* () {
      assert.isAbove(ownFiles.length, 10)
      for (const path of files) {
        const { body, headers, status } = yield* ask(path)
        assert.deepStrictEqual(
          [status, headers["content-type"], headers["cache-control"], headers["x-content-type-options"]],
          [200, types[Path.extname(path)], "no-cache", "nosniff"],
          path
        )
        if (!path.startsWith("/console/vendor/")) {
          const text = readFileSync(Path.join(room, path.slice("/console/".length)), "latin1")
          assert.strictEqual(body, text, path)
        }
      }
    })
  )

  it.effect("a demo's control is one more origin that the page may ask, and nothing else in its policy changes", () =>
    Effect.gen(function* () {
      const context = yield* Layer.build(
        Layer.fresh(
          HttpServer.layer.pipe(
            Layer.provide(Layer.succeed(HttpServer.HttpSettings, anyPort)),
            Layer.provide(Layer.succeed(ConsoleSettings, { demoControlUrl: "http://127.0.0.1:4711" })),
            Layer.provide(underHttpOn(TestDatabase.layer))
          )
        )
      )
      const policyAt = (port: number) =>
        Effect.map(
          sendRaw(port, ["GET /console HTTP/1.1", `Host: 127.0.0.1:${port}`]),
          ({ headers }) => headers["content-security-policy"] ?? ""
        )
      const { port } = yield* HttpServer.BoundAddress
      assert.strictEqual(
        yield* policyAt(Context.get(context, HttpServer.BoundAddress).port),
        (yield* policyAt(port)).replace("connect-src 'self'", "connect-src 'self' http://127.0.0.1:4711")
      )
    }).pipe(Effect.scoped)
  )

  it.effect("the runbooks are one file, each by its name", () =>
    Effect.gen(function* () {
      const { body, headers, status } = yield* ask("/console/runbooks.json")
      assert.deepStrictEqual([status, headers["content-type"]], [200, "application/json"])
      const folder = Path.resolve(room, "../../docs/runbooks")
      assert.deepStrictEqual(
        // The bytes come as Latin-1.
        JSON.parse(Buffer.from(body, "latin1").toString()),
        Object.fromEntries(
          readdirSync(folder).map((name) => [Path.basename(name, ".md"), readFileSync(Path.join(folder, name), "utf8")])
        )
      )
    })
  )

  it.effect("the page answers each address of the console that is no file's, with a policy without exceptions", () =>
    Effect.gen(function* () {
      const importMap = /<script type="importmap">([^]*?)<\/script>/.exec(page)![1]!
      const hash = createHash("sha256").update(importMap).digest("base64")
      for (const path of [
        "/console",
        "/console/",
        "/console?token=x",
        "/console/orders/1.2",
        "/console/runbooks/InboxGaps.md",
        "/console/mail?status=dead"
      ]) {
        const { body, headers, status } = yield* ask(path)
        assert.deepStrictEqual([status, headers["content-type"], body], [200, "text/html; charset=utf-8", page], path)
        const policy = headers["content-security-policy"] ?? ""
        assert.strictEqual(
          policy,
          `default-src 'none'; script-src 'self' 'sha256-${hash}'; style-src 'self'; img-src 'self' data:; connect-src 'self'; ` +
            "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
        )
        assert.notInclude(policy, "unsafe")
        assert.deepInclude(headers, {
          "cache-control": "no-cache",
          "cross-origin-opener-policy": "same-origin",
          "cross-origin-resource-policy": "same-origin",
          "referrer-policy": "no-referrer",
          "x-content-type-options": "nosniff"
        })
      }
    })
  )

  it.effect("everything that the page and its modules load is one of these files, and nothing is inline", () =>
    Effect.gen(function* () {
      const found = new Set<string>()
      const visit = (path: string, text: string): Effect.Effect<void, never, HttpServer.BoundAddress> =>
        Effect.forEach(
          loadedBy(path, text).filter((to) => /\.\w+$/.test(to) && !found.has(to)),
          (to) =>
            Effect.gen(function* () {
              found.add(to)
              const { body, status } = yield* ask(to)
              assert.strictEqual(status, 200, `${path} loads ${to}`)
              yield* visit(to, body)
            }),
          { discard: true }
        )
      yield* visit("/console", page)
      for (const path of vendorFiles) assert.isTrue(found.has(`/console/${path}`), path)
      assert.notMatch(page, /<style|\sstyle=|\son\w+=|https?:/)
      assert.strictEqual(page.match(/<script(?![^>]*\ssrc=)/g)?.length, 1)
    })
  )

  it.effect("no path leads out of the room, however it is spelt", () =>
    Effect.gen(function* () {
      for (const path of [
        "/console/..%2fConfig.ts",
        "/console/..%2f..%2fpackage.json",
        "/console/../Config.ts",
        "/console/../../package.json",
        "/console/%2e%2e/Config.ts",
        "/console/%2e%2e%2fConfig.ts",
        "/console/..%5cConfig.ts",
        "/console/..\\\\Config.ts",
        "/console/pages/../../Config.ts",
        "/console/vendor/../../../package.json",
        "/console/./main.js",
        "/console/main.js%00.css",
        "/console/%ff",
        "/console/%",
        "/console//etc/passwd.svg",
        "/console/vendor/preact.mjs.map",
        "/console/vendor/uPlot.cjs.js",
        "/console/gone.js",
        "/console/gone.css",
        "/console/index.html",
        "/console/constructor.js",
        "/console/__proto__.js"
      ]) {
        const { body, headers, status } = yield* ask(path)
        assert.include([400, 404], status, path)
        assert.strictEqual(headers["content-type"], "application/problem+json", path)
        assert.notInclude(body, "import ", path)
      }
      // Other files of the room are not served: such a path is one of the page's.
      for (const path of ["/console/README.md", "/console/tsconfig.json", "/console/types.ts", "/console/__proto__"]) {
        assert.strictEqual((yield* ask(path)).body, page, path)
      }
    })
  )

  it.effect("a file is sent compressed to who takes that, and not again to who has it", () =>
    Effect.gen(function* () {
      const { port } = yield* HttpServer.BoundAddress
      for (const path of ["/console", "/console/main.js"]) {
        const plain = yield* ask(path)
        const zipped = yield* ask(path, ["Accept-Encoding: br, gzip"])
        assert.deepStrictEqual(
          [zipped.headers["content-encoding"], zipped.headers["vary"]],
          ["gzip", "accept-encoding"]
        )
        assert.strictEqual(gunzipSync(Buffer.from(zipped.body, "latin1")).toString("latin1"), plain.body)
        assert.isUndefined(plain.headers["content-encoding"])
        for (const coding of ["identity", "br", "gzip;q=0", "gzip; q=0.0", "xgzip"]) {
          assert.isUndefined((yield* ask(path, [`Accept-Encoding: ${coding}`])).headers["content-encoding"], coding)
        }
        for (const [{ headers }, encoding] of [
          [plain, "identity"],
          [zipped, "gzip"]
        ] as const) {
          const etag = headers["etag"]!
          for (const tags of [etag, `W/${etag}`, `"other", ${etag}`]) {
            const again = yield* ask(path, [`If-None-Match: ${tags}`, `Accept-Encoding: ${encoding}`])
            assert.deepStrictEqual([again.status, again.body, again.headers["etag"]], [304, "", etag])
            // A browser applies the headers of a 304 to the page that it has.
            assert.strictEqual(again.headers["content-security-policy"], headers["content-security-policy"])
            assert.strictEqual(again.headers["cache-control"], "no-cache")
          }
          assert.strictEqual((yield* ask(path, ['If-None-Match: "other"', `Accept-Encoding: ${encoding}`])).status, 200)
        }
        assert.notStrictEqual(plain.headers["etag"], zipped.headers["etag"])
        const head = yield* ask(path, [], "HEAD")
        assert.deepStrictEqual(
          [head.status, head.body, head.headers["content-length"], head.headers["etag"]],
          [200, "", String(plain.body.length), plain.headers["etag"]]
        )
      }
      const absolute = yield* sendRaw(port, [
        `GET http://127.0.0.1:${port}/console/main.js HTTP/1.1`,
        `Host: 127.0.0.1:${port}`
      ])
      assert.strictEqual(absolute.headers["content-type"], types[".js"])
    })
  )

  it.effect("other methods are refused", () =>
    Effect.gen(function* () {
      for (const path of ["/console", "/console/main.js", "/console/orders/1"]) {
        const { headers, status } = yield* ask(path, ["Content-Type: application/json"], "POST")
        assert.deepStrictEqual([status, headers["allow"]], [405, "GET, HEAD"], path)
      }
    })
  )

  it.effect("the root leads a browser to the console, and nobody else", () =>
    Effect.gen(function* () {
      const browser = yield* ask("/", ["Accept: text/html,application/xhtml+xml,*/*;q=0.8"])
      assert.deepStrictEqual([browser.status, browser.headers["location"]], [303, "/console"])
      for (const lines of [[], ["Accept: */*"], ["Accept: application/json"]]) {
        const { headers, status } = yield* ask("/", lines)
        assert.deepStrictEqual([status, headers["content-type"]], [404, "application/problem+json"])
      }
    })
  )

  it.effect("the token of the link is in no trace", () =>
    Effect.gen(function* () {
      spans.length = 0
      yield* ask("/console?token=secret-of-the-link&x=1")
      assert.isAbove(spans.length, 0)
      const text = JSON.stringify(spans)
      assert.include(text, "x=1")
      assert.notInclude(text, "secret-of-the-link")
    })
  )
})
