/** A directory for files that other users of the machine must not replace. */
import { constants, type Stats } from "node:fs"
import { chmod, lstat, mkdir, readlink } from "node:fs/promises"
import * as Path from "node:path"

/** How a file of ours is read: no planted link is followed, and no planted pipe waited for. */
export const plainFile = {
  encoding: "utf8",
  flag: constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK
} as const

/** Root's Postgres runs as another user, who has to pass through. Nobody else can list the directory. */
const mode = process.getuid?.() === 0 ? 0o711 : 0o700

/** As many as the kernel follows in one path. */
const longestChain = 40

const groupWrites = 0o020
const othersWrite = 0o002
const sticky = 0o1000

const self = process.getuid?.() ?? 0
const isTrusted = ({ uid }: Stats) => uid === self || uid === 0

/** Whether this program is below `directory`: whoever can replace what is there can replace the program, too. */
const holdsProgram = (directory: string) =>
  `${import.meta.dirname}/`.startsWith(directory === "/" ? "/" : `${directory}/`)

/** Rejects a directory on the way, in which another user could put a link in the place of what comes next. */
const checkAbove = (directory: string, found: Stats) => {
  if (holdsProgram(directory)) return
  if (!isTrusted(found)) {
    throw new Error(`${directory} belongs to user ${found.uid}, who can replace what is in it: name another directory`)
  }
  // In a sticky one, like /tmp, nobody replaces what belongs to another user.
  if ((found.mode & othersWrite) !== 0 && (found.mode & sticky) === 0) {
    throw new Error(`everybody can replace what is in ${directory}: take that right away (chmod o-w), or name another`)
  }
}

/** Goes to `directory` from the root, level by level as the kernel does. Returns its path without links, and what is there. */
const walk = async (directory: string, missing: (path: string) => Promise<unknown>) => {
  const namesIn = (path: string) => path.split("/").filter((name) => name !== "" && name !== ".")
  const names = namesIn(Path.resolve(directory))
  let at = "/"
  let found = await lstat(at)
  let links = 0
  for (let name = names.shift(); name !== undefined; name = names.shift()) {
    checkAbove(at, found)
    const next = Path.join(at, name)
    const there = await lstat(next).catch(async (error: NodeJS.ErrnoException) => {
      if (error.code !== "ENOENT") throw error
      await missing(next)
      return lstat(next)
    })
    if (there.isSymbolicLink()) {
      if (!isTrusted(there)) {
        throw new Error(`${next} is a link of user ${there.uid}, who can lead it anywhere: name another directory`)
      }
      if (++links > longestChain) throw new Error(`too many links, at ${next}`)
      const target = await readlink(next)
      names.unshift(...namesIn(target))
      if (!Path.isAbsolute(target)) continue
      at = "/"
    } else {
      at = next
    }
    found = await lstat(at)
  }
  return { path: at, found }
}

/**
 * Makes `directory` where it is missing. An existing one must belong to this process's user or to root, and not be writable for everybody:
 * its owner could put a link in the place of any file. The same holds for the directories above it and for links on the way. A directory
 * of this user is closed to its group, which a umask of 002 lets in. Above it the group is trusted.
 *
 * Rejects with a sentence for the operator.
 */
export const make = async (directory: string): Promise<void> => {
  const { found, path } = await walk(directory, (level) =>
    mkdir(level, { mode }).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== "EEXIST") throw error // another process of ours was first
    })
  )
  checkOwn(found)
  if ((found.mode & groupWrites) === 0) return
  if (found.uid === self) return chmod(path, found.mode & 0o7777 & ~groupWrites)
  refuseGroup()
}

/** Checks an existing directory as {@link make} does, and changes nothing: a right of its group to write is refused. */
export const check = async (directory: string): Promise<void> => {
  const { found } = await walk(directory, async (level) => {
    throw new Error(`there is no ${level}`)
  })
  checkOwn(found)
  if ((found.mode & groupWrites) !== 0) refuseGroup()
}

const refuseGroup = () => {
  throw new Error("its group can write to it: take that right away (chmod g-w), or name another directory")
}

const checkOwn = (found: Stats) => {
  if (!found.isDirectory()) throw new Error("it is a file")
  if (!isTrusted(found)) {
    throw new Error(
      `it belongs to user ${found.uid}, and this process is user ${self}: run as that user, or name another directory`
    )
  }
  if ((found.mode & othersWrite) !== 0) {
    throw new Error("everybody can write to it: name a directory inside it, or take that right away (chmod o-w)")
  }
}
