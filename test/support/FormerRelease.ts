/**
 * The release before this one, as a directory with its source and migrations: the commit before the newest migration came. A deploy that migrates has
 * exactly these two beside each other. It runs on this release's packages.
 *
 * It comes from git, so the checkout needs its history. `FORMER_RELEASE` names another commit.
 */
import { Effect } from "effect"
import { execFile } from "node:child_process"
import { mkdir, readdir, symlink } from "node:fs/promises"
import * as Path from "node:path"
import { promisify } from "node:util"
import { root, TestDatabase } from "./TestDatabase.ts"

const sets = ["mechanism", "business", "sandbox"].map((set) => `migrations/${set}/*.sql`)
const run = promisify(execFile)
const git = async (...args: ReadonlyArray<string>) => (await run("git", [...args], { cwd: root })).stdout.trim()

const commitOf = async () => {
  const named = process.env["FORMER_RELEASE"]
  if (named !== undefined) return git("rev-parse", "--verify", `${named}^{commit}`)
  // One that is not committed yet is the newest.
  const isNew = (await git("status", "--porcelain", "--untracked-files=all", "--", ...sets))
    .split("\n")
    .some((line) => /^(\?\?|A)/.test(line))
  if (isNew) return git("rev-parse", "HEAD")
  const added = await git("log", "-1", "--diff-filter=A", "--format=%H", "--", ...sets)
  return git("rev-parse", "--verify", `${added}^^{commit}`)
}

/** The directory and the commit. Fails in a checkout without history: a skipped test would pass for a deploy that works. */
export const formerRelease = Effect.gen(function* () {
  const directory = Path.join(yield* TestDatabase.dataDirectory, "former")
  return yield* Effect.tryPromise({
    try: async () => {
      const commit = await commitOf()
      await mkdir(directory)
      await run("sh", ["-c", `git archive ${commit} src migrations package.json | tar -x -C '${directory}'`], {
        cwd: root
      })
      await symlink(Path.join(root, "node_modules"), Path.join(directory, "node_modules"))
      // It was TypeScript once.
      const entry = (await readdir(Path.join(directory, "src"))).find((name) => /^paid-once\.[jt]s$/.test(name))
      return { commit, entry: Path.join(directory, "src", entry!) }
    },
    catch: (cause) =>
      new Error(
        `the former release is not in this checkout's history (git fetch --unshallow brings it): ${String(cause)}`
      )
  })
})
