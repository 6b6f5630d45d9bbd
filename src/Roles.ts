/** The roles of a process: what of the service it runs. */
import { Result } from "effect"

/** Parts of the service that a process may run; all of them unless `--roles` says otherwise. */
export const roles = ["http", "dispatcher", "consumers", "workers", "maintenance"] as const
export type Role = (typeof roles)[number]

/** Reads a `--roles` list; fails with a sentence that names what is wrong. */
export const parseRoles = (list: string): Result.Result<ReadonlySet<Role>, string> => {
  const names = list
    .split(",")
    .map((name) => name.trim())
    .filter((name) => name !== "")
  const unknown = names.filter((name) => !roles.some((role) => role === name))
  if (names.length === 0 || unknown.length > 0) {
    return Result.fail(
      `--roles: ${unknown.length > 0 ? `"${unknown.join(", ")}"` : "an empty list"} is not in ${roles.join(", ")}`
    )
  }
  return Result.succeed(new Set(roles.filter((role) => names.includes(role))))
}
