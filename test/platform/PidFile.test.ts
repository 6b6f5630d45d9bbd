/** The file with the id of a process, of real processes on one directory. */
import { afterEach, assert, beforeEach, describe, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { execFileSync, spawn } from "node:child_process"
import {
  chmodSync,
  chownSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync
} from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as PidFile from "../../src/platform/PidFile.ts"
import { root as checkout } from "../support/Postgres.ts"

let root = ""
let directory = ""
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), "pid-file-"))
  directory = join(root, "data")
})
afterEach(() => rmSync(root, { recursive: true, force: true }))

const module = join(checkout, "src/platform/PidFile.ts")
const program = `
  const { Effect, Layer } = await import("effect")
  const PidFile = await import(${JSON.stringify(module)})
  const run = Effect.gen(function*() {
    yield* Layer.build(PidFile.layer(process.argv[2]))
    process.stdout.write("ready\\n")
    yield* Effect.promise(() => new Promise((resolve) => process.stdin.on("end", resolve).resume()))
  }).pipe(Effect.scoped)
  await Effect.runPromise(run)
`

/** A process that keeps a file. Its arguments contain the name by which a living service is known. */
const start = async () => {
  const child = spawn(process.execPath, ["--input-type=module", "-e", program, "paid-once", directory], {
    cwd: checkout,
    stdio: ["pipe", "pipe", "inherit"]
  })
  const exited = new Promise<void>((resolve) => child.once("close", () => resolve()))
  await new Promise((resolve) => child.stdout.once("data", resolve))
  return {
    pid: child.pid!,
    stop: () => {
      child.stdin.end()
      return exited
    },
    kill: () => {
      child.kill("SIGKILL")
      return exited
    }
  }
}

/** Keeps the file of this process while `use` runs. */
const within = (use: () => void) =>
  Effect.runPromise(Effect.scoped(Effect.andThen(Layer.build(PidFile.layer(directory)), Effect.sync(use))))

const refusal = () =>
  Effect.runPromise(Effect.flip(Effect.scoped(Layer.build(PidFile.layer(directory))))).then(({ message }) => message)

const pidIn = (name: string) => Number(readFileSync(join(directory, name), "utf8"))
const files = () => readdirSync(directory).filter((name) => name.endsWith(".pid"))

describe("service.pid", () => {
  it("each process on a directory has a file of its own, and takes no other's away", async () => {
    const processes = await Promise.all([start(), start(), start()])
    const pids = processes.map(({ pid }) => pid)
    assert.strictEqual(files().length, 3)
    assert.sameMembers(files().map(pidIn), pids)
    const first = processes.find(({ pid }) => pid === pidIn("service.pid"))!
    const others = processes.filter((one) => one !== first)
    for (const { pid } of others) assert.strictEqual(pidIn(`service-${pid}.pid`), pid)
    await first.stop()
    assert.sameMembers(
      files().map(pidIn),
      others.map(({ pid }) => pid)
    )
    await others[0]!.kill()
    // The killed one's file is removed, and the free name taken.
    const next = await start()
    assert.strictEqual(pidIn("service.pid"), next.pid)
    assert.sameMembers(files().map(pidIn), [next.pid, others[1]!.pid])
    await Promise.all([next.stop(), others[1]!.stop()])
    assert.deepStrictEqual(files(), [])
  })

  it("a planted link is neither written through nor read", async () => {
    mkdirSync(directory, { mode: 0o711 })
    const target = join(root, "somebody-elses")
    writeFileSync(target, "kept")
    symlinkSync(target, join(directory, "service.pid"))
    await within(() => {
      assert.strictEqual(readFileSync(target, "utf8"), "kept")
      assert.isTrue(lstatSync(join(directory, "service.pid")).isFile())
      assert.strictEqual(pidIn("service.pid"), process.pid)
      assert.strictEqual(lstatSync(join(directory, "service.pid")).mode & 0o777, 0o600)
    })
    assert.strictEqual(readFileSync(target, "utf8"), "kept")
  })

  it("a planted pipe is not waited for", async () => {
    mkdirSync(directory, { mode: 0o711 })
    execFileSync("mkfifo", [join(directory, "service.pid")])
    await within(() => assert.strictEqual(pidIn("service.pid"), process.pid))
  })

  it("a new directory is closed to other users", async () => {
    await within(() => assert.strictEqual(lstatSync(directory).mode & 0o066, 0))
  })

  it.skipIf(process.getuid?.() !== 0)("a directory of another user is refused in a sentence", async () => {
    mkdirSync(directory)
    chownSync(directory, 65_534, 65_534)
    const line = await refusal()
    assert.include(line, "DATA_DIRECTORY:")
    assert.include(line, "it belongs to user 65534, and this process is user 0")
    assert.deepStrictEqual(readdirSync(directory), [])
  })

  it("a directory that everybody can write to is refused in a sentence", async () => {
    mkdirSync(directory)
    chmodSync(directory, 0o777)
    const line = await refusal()
    assert.include(line, "everybody can write to it: name a directory inside it")
    assert.deepStrictEqual(readdirSync(directory), [])
  })
})
