/** A process of a measurement that answers calls: a writer or a reader. */
import { Effect } from "effect"
import { type ChildProcess, fork } from "node:child_process"

/** A running process. */
export interface Child {
  readonly pid: number
  /** Calls a handler of the process by its name. A defect if the handler throws, or if the process ends before it has answered. */
  readonly call: <A = void>(name: string, argument?: unknown) => Effect.Effect<A>
}

/** The clock that all processes of this machine share, in milliseconds. */
export const now = (): number => Number(process.hrtime.bigint()) / 1e6

type Answer = { readonly call: number; readonly value?: unknown; readonly error?: string }

/** Starts `file` with these variables added to the environment. It ends with the scope. */
export const start = (file: string, env: Readonly<Record<string, string>>) =>
  Effect.acquireRelease(
    Effect.sync(() => {
      const child: ChildProcess = fork(file, { env: { ...process.env, ...env }, serialization: "advanced" })
      const waiting = new Map<number, (answer: Answer) => void>()
      let calls = 0
      let ended: string | undefined
      child.on("message", (message: Answer) => {
        waiting.get(message.call)?.(message)
        waiting.delete(message.call)
      })
      child.on("exit", (code, signal) => {
        ended = `${file} ended with ${String(code ?? signal)}`
        for (const [call, settle] of waiting) settle({ call, error: ended })
        waiting.clear()
      })
      const call = <A>(name: string, argument?: unknown) =>
        Effect.callback<A>((resume) => {
          // Nobody would answer.
          if (ended !== undefined) return resume(Effect.die(new Error(ended)))
          const number = ++calls
          waiting.set(number, ({ error, value }) =>
            resume(error === undefined ? Effect.succeed(value as A) : Effect.die(new Error(error)))
          )
          child.send({ call: number, name, argument })
        })
      return { pid: child.pid ?? 0, call, child }
    }),
    ({ child }) =>
      Effect.callback<void>((resume) => {
        if (child.exitCode !== null || child.signalCode !== null) return resume(Effect.void)
        child.on("exit", () => resume(Effect.void))
        child.kill("SIGKILL")
      })
  ) satisfies Effect.Effect<Child, never, unknown>

/** Answers the calls of the process that has started this one. */
export const answer = (handlers: Readonly<Record<string, (argument: never) => Promise<unknown>>>): void => {
  const handle = async (call: number, name: string, argument: unknown): Promise<Answer> => {
    try {
      return { call, value: await handlers[name]?.(argument as never) }
    } catch (error) {
      return { call, error: String(error) }
    }
  }
  process.on("message", ({ argument, call, name }: { call: number; name: string; argument: unknown }) => {
    void handle(call, name, argument).then((message) => process.send?.(message))
  })
  // The starter is gone.
  process.on("disconnect", () => process.exit(1))
}
