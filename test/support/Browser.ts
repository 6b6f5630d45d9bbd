/**
 * A real Chromium for tests, and pages in it as a person uses them: by role and name, with the mouse and the keyboard. A page fails its test
 * if a script throws, if the console has an error, if the content security policy is violated, or if it asks another host for anything.
 */
import { describe as group } from "@effect/vitest"
import { Context, Effect, Layer, type Scope } from "effect"
import { type Browser as Chromium, type CDPSession, type KeyInput, launch, type Page } from "puppeteer-core"
import { inject } from "vitest"
import type { BrowserSource } from "./BrowserSource.ts"
import { eventually } from "./Counters.ts"

/** A group of tests that need a browser. Without one they say so, and with `CI=true` they fail. */
export const describe = (what: string, define: () => void) => {
  const isMissing = inject("browserSource") === null
  if (isMissing) {
    const missing = `none of these ran (${what}): ${inject("browserMissing")}`
    if (process.env["CI"] === "true") throw new Error(missing)
    process.stderr.write(`SKIPPED: ${missing}\n`)
  }
  group.skipIf(isMissing)(what, define)
}

export interface PageOptions {
  /** Where it begins; everything that it asks for must have this origin. */
  readonly url: string
  readonly theme?: "light" | "dark"
  readonly width?: number
  readonly height?: number
  /** Failures that the test brings about, such as `status of 409`. */
  readonly allowed?: RegExp
}

/** An element as assistive technology finds it. */
export interface Named {
  readonly role: string
  /** Its accessible name, exactly. */
  readonly name: string
}

/** A page of the browser. Each step waits until it can be done, and says what it waited for when it gives up. */
export interface BrowserPage {
  readonly page: Page
  /** Goes to a path of the page's origin. */
  readonly visit: (path: string) => Effect.Effect<void>
  /** Waits until the text can be seen. */
  readonly see: (text: string) => Effect.Effect<void>
  /** Waits until the text can't be seen any more. */
  readonly seeNoMore: (text: string) => Effect.Effect<void>
  /** The text that can be seen. */
  readonly text: Effect.Effect<string>
  /** How many elements have this role and name and can be seen. */
  readonly count: (one: Named) => Effect.Effect<number>
  /** Waits until exactly one such element can be seen and is enabled, and clicks into its middle. */
  readonly click: (role: string, name: string) => Effect.Effect<void>
  /** Replaces the text of a field. */
  readonly fill: (name: string, text: string, role?: string) => Effect.Effect<void>
  readonly choose: (name: string, value: string) => Effect.Effect<void>
  readonly press: (...keys: ReadonlyArray<KeyInput>) => Effect.Effect<void>
  /** Runs an expression in the page, past its content security policy. */
  readonly evaluate: <A>(expression: string) => Effect.Effect<A>
  /** What has gone wrong in the page so far. */
  readonly failures: () => ReadonlyArray<string>
}

/** Far above what a step takes while two busy loops have the cores. */
const patienceSeconds = 30

const promise = <A>(run: () => Promise<A>): Effect.Effect<A> => Effect.promise(run)

/** False where the page changes under the step: then it is tried again. */
const step = (run: () => Promise<boolean>): Effect.Effect<boolean> =>
  Effect.catchCause(Effect.promise(run), () => Effect.succeed(false))

/** Whether an element is enabled, and has stood still for two frames: a click into what moves hits something else. */
const isReady = async (element: unknown): Promise<boolean> => {
  const { disabled, getBoundingClientRect: box } = element as {
    disabled?: boolean
    getBoundingClientRect: () => object
  }
  const { requestAnimationFrame: frame } = globalThis as unknown as {
    requestAnimationFrame: (then: () => void) => void
  }
  const place = () => JSON.stringify(box.call(element))
  const before = place()
  await new Promise<void>((resolve) => frame(() => frame(resolve)))
  return disabled !== true && place() === before
}

/** Collects what goes wrong. A violation of the policy is an issue of DevTools, and no exception that a page could catch. */
const watch = async (page: Page, session: CDPSession, origin: string, failures: Array<string>) => {
  page.on("pageerror", (error) => failures.push(`exception: ${error instanceof Error ? error.message : String(error)}`))
  page.on("console", (message) => {
    if (message.type() !== "error") return
    failures.push(`console: ${message.text()} (${message.location().url ?? "?"})`)
  })
  page.on("request", (request) => {
    const { origin: asked, protocol } = new URL(request.url())
    if (asked !== origin && !["data:", "blob:", "about:"].includes(protocol)) failures.push(`asks ${request.url()}`)
  })
  session.on("Audits.issueAdded", ({ issue }) => {
    if (issue.code !== "ContentSecurityPolicyIssue") return
    failures.push(`policy: ${JSON.stringify(issue.details.contentSecurityPolicyIssueDetails)}`)
  })
  await session.send("Audits.enable")
}

const seen = "document.body === null ? '' : document.body.innerText"

const stepsOf = (page: Page, origin: string, failures: ReadonlyArray<string>): BrowserPage => {
  const find = async ({ name, role }: Named) => {
    const quoted = name.replaceAll("\\", "\\\\").replaceAll('"', '\\"')
    const found = await page.$$(`::-p-aria([name="${quoted}"][role="${role}"])`)
    const visible = []
    for (const one of found) if (await one.isVisible()) visible.push(one)
    return visible
  }
  const text = Effect.catchCause(
    promise(() => page.evaluate(seen) as Promise<string>),
    () => Effect.succeed("")
  )
  /** A failure tells what the page showed and what had gone wrong in it, for else nobody knows. */
  const until = (what: string, condition: Effect.Effect<boolean>) =>
    eventually(what, condition, patienceSeconds).pipe(
      Effect.catchCause((cause) =>
        Effect.flatMap(text, (shown) =>
          Effect.die(
            new Error(
              `${String(cause)}\nfailures: ${[...new Set(failures)].join("; ")}\nthe page shows:\n${shown.slice(0, 3_000)}`
            )
          )
        )
      )
    )
  const onOne = (
    what: string,
    role: string,
    name: string,
    act: (found: Awaited<ReturnType<typeof find>>[number]) => Promise<void>
  ) =>
    until(
      `${what} ${role} "${name}"`,
      step(async () => {
        const [only, ...others] = await find({ role, name })
        if (only === undefined || others.length > 0) return false
        if (!(await only.evaluate(isReady))) return false
        await act(only)
        return true
      })
    )
  return {
    page,
    failures: () => failures,
    text,
    visit: (path) => promise(() => page.goto(origin + path, { waitUntil: "domcontentloaded" })),
    see: (wanted) =>
      until(
        `"${wanted}" on the page`,
        Effect.map(text, (shown) => shown.includes(wanted))
      ),
    seeNoMore: (unwanted) =>
      until(
        `"${unwanted}" to go`,
        Effect.map(text, (shown) => !shown.includes(unwanted))
      ),
    count: (one) => promise(async () => (await find(one)).length),
    click: (role, name) => onOne("click", role, name, (found) => found.click()),
    fill: (name, value, role = "textbox") =>
      onOne("fill", role, name, async (found) => {
        await found.click({ count: 3 })
        await page.keyboard.press("Backspace")
        await page.keyboard.sendCharacter(value)
      }),
    choose: (name, value) => onOne("choose in", "combobox", name, async (found) => void (await found.select(value))),
    press: (...keys) => Effect.forEach(keys, (key) => promise(() => page.keyboard.press(key)), { discard: true }),
    evaluate: <A>(expression: string) => promise(() => page.evaluate(expression) as Promise<A>)
  }
}

/** One Chromium for a test file. */
export class Browser extends Context.Service<
  Browser,
  {
    /** Opens a page with cookies of its own, uses it, and dies if anything has gone wrong in it that is not `allowed`. */
    readonly use: <A, E, R>(
      options: PageOptions,
      body: (page: BrowserPage) => Effect.Effect<A, E, R>
    ) => Effect.Effect<A, E, R>
  }
>()("test/Browser") {
  static readonly layer = Layer.effect(
    Browser,
    Effect.suspend(() => make(inject("browserSource")!))
  )
}

/** Not the package's own arguments: they switch off web security, which is under test here. */
const start = (source: BrowserSource): Effect.Effect<Chromium, never, Scope.Scope> =>
  Effect.acquireRelease(
    promise(() =>
      launch({
        executablePath: source.path,
        headless: "shell",
        // Root may run it only like this. Its pages are ours alone. A container's /dev/shm is too small for it.
        args: ["--no-sandbox", "--disable-dev-shm-usage", "--font-render-hinting=none", "--disable-gpu"],
        env: { PATH: process.env["PATH"], ...source.env }
      })
    ),
    (chromium) => promise(() => chromium.close())
  )

/** A Chromium from the source, until the scope closes. */
export const make = Effect.fnUntraced(function* (source: BrowserSource) {
  const chromium = yield* start(source)
  const open = (options: PageOptions, failures: Array<string>) =>
    Effect.map(
      Effect.acquireRelease(
        promise(async () => {
          const context = await chromium.createBrowserContext()
          const page = await context.newPage()
          await page.setViewport({ width: options.width ?? 1_400, height: options.height ?? 900 })
          await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: options.theme ?? "light" }])
          const { origin } = new URL(options.url)
          await watch(page, await page.createCDPSession(), origin, failures)
          return { context, page, origin }
        }),
        ({ context }) => promise(() => context.close())
      ),
      ({ origin, page }) => stepsOf(page, origin, failures)
    )
  return Browser.of({
    use: (options, body) =>
      Effect.gen(function* () {
        const failures: Array<string> = []
        const result = yield* Effect.scoped(Effect.flatMap(open(options, failures), body))
        const left = failures.filter((failure) => options.allowed?.test(failure) !== true)
        if (left.length > 0)
          return yield* Effect.die(new Error(`in the page at ${options.url}:\n${[...new Set(left)].join("\n")}`))
        return result
      })
  })
})
