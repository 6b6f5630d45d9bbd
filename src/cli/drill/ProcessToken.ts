/** A process that is found again by a token in its environment. A pid alone may be another program's by the time that it is read. */
import { Effect } from "effect"
import { readdirSync, readFileSync } from "node:fs"

const variable = "DRILL_PROCESS"

/** The variables of a process that has this token. */
export const envOf = (token: string): Readonly<Record<string, string>> => ({ [variable]: token })

const hasEntry = (pid: string, entry: string) => {
  try {
    return readFileSync(`/proc/${pid}/environ`, "utf8").split("\0").includes(entry)
  } catch {
    // It has ended meanwhile, or is another user's.
    return false
  }
}

/** Kills each process of this user that was started with the token, frozen ones too. Does nothing where there is none. */
export const end = (token: string) =>
  Effect.sync(() => {
    const entry = `${variable}=${token}`
    for (const pid of readdirSync("/proc"))
      if (/^\d+$/.test(pid) && hasEntry(pid, entry)) process.kill(Number(pid), "SIGKILL")
  })
