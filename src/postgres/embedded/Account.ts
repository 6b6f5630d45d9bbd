/**
 * The account that runs the server, and the directory of its data.
 *
 * Postgres runs with an unprivileged user of this machine, and never with root's rights: whoever takes the server over gets no more than
 * that user has. Started by root, it is another user, who may not reach the checkout. Then its binaries and its data are in a *shelter*.
 */
import { Effect } from "effect"
import { createHash } from "node:crypto"
import { chmod, lchown, lstat, mkdir, readFile, stat, writeFile } from "node:fs/promises"
import { userInfo } from "node:os"
import { join } from "node:path"
import { plainFile } from "../../platform/OwnDirectory.ts"
import { type Binaries, copyBinaries, HostOptions } from "./Host.ts"
import { type Account, attempt, errorCode, fail, run, whereExists } from "./Process.ts"

/** How to run the server of one data directory. `base` is that directory, or its shelter outside a closed home. */
export interface Host {
  readonly account: Account
  readonly binaries: Binaries
  readonly base: string
}

type User = { readonly name: string; readonly uid: number; readonly gid: number }

// Not /var/tmp first: systemd deletes files there that were not written for 30 days, and a database has such files.
const shelterRoots = ["/var/lib", "/var/tmp"]
const pointerOf = (home: string) => join(home, "elsewhere")

/** The possible shelters of a data directory. Their names contain a hash of its path: a copied directory never uses the original's data. */
export const sheltersOf = (home: string) => {
  const hash = createHash("sha256").update(home).digest("hex").slice(0, 16)
  return shelterRoots.map((root) => join(root, `paid-once-${hash}`))
}

/** The directory with the data of `home`: `home` itself, or the shelter that its pointer names. */
export const baseOf = Effect.fnUntraced(function* (home: string) {
  const pointer = (yield* whereExists("read the pointer", () => readFile(pointerOf(home), plainFile)))?.trim()
  if (pointer === undefined) return home
  const there =
    sheltersOf(home).includes(pointer) && (yield* whereExists(`look at ${pointer}`, () => stat(pointer))) !== undefined
  if (there) return pointer
  return yield* fail(
    "DataMissing",
    `the data of ${home} should be in ${pointer}, which is gone or belongs to a directory at another path. ` +
      `Put it back (at ${sheltersOf(home)[0]}), or begin anew with npm run reset.`
  )
})

/**
 * Chooses the account that runs the server of `home`: the owner of the data, once there is data. Where that account can't reach them, it
 * copies the binaries, and new data goes to a shelter. No server may run on the data meanwhile.
 */
export const settle = Effect.fn("EmbeddedPostgres.settle")(function* (home: string, binaries: Binaries) {
  const base = yield* baseOf(home)
  const owner = (yield* whereExists("look at the data", () => lstat(join(base, "data"))))?.uid
  const self = process.getuid?.() ?? 0
  if (self === 0) return yield* asOtherUser(home, base, binaries, owner)
  if (owner !== undefined && owner !== self) {
    const message = `${base}/data belongs to user ${owner}, and this process is user ${self}. Run as that user. ${orElse}`
    return yield* fail("WrongOwner", message)
  }
  if (hasName()) return { account: { _tag: "Self" }, binaries, base } satisfies Host
  // initdb asks for the name of its user. In a user namespace the id is that of another user; to the machine it stays ours.
  const account = yield* namespaceAccount(`user ${self} has no name in /etc/passwd`)
  return { account, binaries, base } satisfies Host
})

const orElse = "Begin anew with npm run reset, or set DATABASE_URL."

const hasName = () => {
  try {
    return userInfo().username !== ""
  } catch {
    return false
  }
}

/** The kernel's errors for a process that may not become another user: it lacks the right, or its namespace lacks the user. */
const refusals: ReadonlySet<string | undefined> = new Set(["EPERM", "EINVAL"])

const asOtherUser = Effect.fnUntraced(function* (
  home: string,
  base: string,
  binaries: Binaries,
  owner: number | undefined
) {
  const user = yield* unprivileged(owner, binaries)
  const account: Account = { _tag: "OtherUser", uid: user.uid, gid: user.gid }
  const refuse = (yield* HostOptions).refuseOtherUsers === true
  const tried = refuse ? fail("NoAccount", "refused", { code: "EPERM" }) : run(account, "true", [])
  const problem = yield* tried.pipe(
    Effect.as(undefined),
    Effect.catch((error) => Effect.succeed(error))
  )
  if (problem !== undefined) {
    const who = `user ${user.uid} (${user.name})`
    if (!refusals.has(errorCode(problem))) {
      return yield* fail("NoAccount", `can't run Postgres as ${who}: ${problem.message}. Set DATABASE_URL.`, problem)
    }
    if (owner !== undefined && owner !== 0) {
      const message = `${base}/data belongs to ${who}, whom this process may not become. ${orElse}`
      return yield* fail("WrongOwner", message, problem)
    }
    return yield* withOwnRights(base, binaries, who)
  }
  const reached = base !== home || (yield* run(account, "test", ["-x", home])).code === 0
  const runs = yield* run(account, join(binaries.native, "bin/postgres"), ["--version"]).pipe(
    Effect.orElseSucceed(() => ({ code: 1 }))
  )
  if (base === home && reached && runs.code === 0) {
    if (owner === 0) yield* give(join(base, "data"), user)
    return { account, binaries, base } satisfies Host
  }
  if (!reached && owner !== undefined) {
    const message = `user ${user.uid} (${user.name}), who runs Postgres, may not enter ${home} any more: open it and what is above it (chmod a+x).`
    return yield* fail("WrongOwner", `${message} ${orElse}`)
  }
  const shelter = yield* makeShelter(home, user)
  if (!reached) {
    yield* attempt("point to the shelter", () => writeFile(pointerOf(home), `${shelter}\n`, { mode: 0o600 }))
  }
  return {
    account,
    binaries: runs.code === 0 ? binaries : yield* copyBinaries(binaries, shelter),
    base: reached ? base : shelter
  } satisfies Host
})

/** The owner of the data, the owner of the checkout, or a user that no person logs in as. */
const unprivileged = Effect.fnUntraced(function* (owner: number | undefined, binaries: Binaries) {
  const users = yield* passwd
  const checkout = (yield* attempt("look at the binaries", () => stat(binaries.native))).uid
  const known = (uid: number | undefined) => users.find((user) => user.uid === uid && uid !== 0)
  const named = (name: string) => users.find((user) => user.name === name)
  const user = known(owner) ?? known(checkout) ?? named("postgres") ?? named("nobody")
  if (user !== undefined && user.uid !== 0 && (owner === undefined || owner === 0 || user.uid === owner)) return user
  return yield* fail("NoAccount", `no user ${owner ?? "postgres or nobody"} to run Postgres as. Set DATABASE_URL.`)
})

const passwd = Effect.map(
  whereExists("read /etc/passwd", () => readFile("/etc/passwd", "utf8")),
  (text) =>
    (text ?? "")
      .split("\n")
      .map((line) => line.split(":"))
      .filter((fields) => fields.length >= 4)
      .map((fields): User => ({ name: fields[0] ?? "", uid: Number(fields[2]), gid: Number(fields[3]) }))
)

/** For a container with one user. Its root is an ordinary user outside, and Postgres gets the rights that this process has. */
const withOwnRights = Effect.fnUntraced(function* (base: string, binaries: Binaries, who: string) {
  const account = yield* namespaceAccount(`this process may not become ${who}`)
  yield* Effect.logWarning(
    `this process is root and may not become ${who}, as in a container with a single user: the embedded Postgres runs ` +
      `with the rights of this process. For trying out only; set DATABASE_URL to a Postgres of your own.`
  )
  return { account, binaries, base } satisfies Host
})

/** An account in a user namespace. Tried by a command, because containers and sysctls refuse it in many ways. */
const namespaceAccount = Effect.fnUntraced(function* (why: string) {
  const overflow = 65_534 // the kernel shows it for files of unmapped users, so an account with this id would take them for its own
  // initdb asks for the name of its user, so the id must be in /etc/passwd.
  const user = (yield* passwd).find(({ uid }) => uid > 0 && uid !== overflow) ?? { uid: overflow, gid: overflow }
  const account: Account = { _tag: "UserNamespace", uid: user.uid, gid: user.gid }
  const refused = (reason: string, cause?: unknown) =>
    fail("NoAccount", `${why}, and ${reason}. Set DATABASE_URL, or run as a user with a name.`, cause)
  const { code, output } = yield* run(account, "true", []).pipe(
    Effect.mapError((cause) =>
      errorCode(cause) === "ENOENT"
        ? refused("the command unshare is missing (package util-linux)", cause)
        : refused(cause.message, cause)
    )
  )
  if (code === 0) return account
  return yield* refused(`this machine refuses a user namespace (unshare --user: ${output.trim()})`)
})

/** Directory and data belong to different users: the server can't put a link in the place of a file that root writes. */
const makeShelter = (home: string, user: User) =>
  Effect.firstSuccessOf(
    sheltersOf(home).map((shelter) =>
      attempt(`make ${shelter}`, async () => {
        await mkdir(shelter).catch((cause: NodeJS.ErrnoException) => {
          if (cause.code !== "EEXIST") throw cause
        })
        const found = await lstat(shelter)
        // The parent may be writable for everybody, so another user could have created this path first.
        if (!found.isDirectory() || (found.uid !== 0 && found.uid !== user.uid)) {
          throw new Error("it belongs to another user")
        }
        await lchown(shelter, 0, 0)
        await chmod(shelter, 0o711)
        return shelter
      })
    )
  )

const give = (directory: string, { gid, uid }: User) => asSelf("chown", ["-R", "-h", `${uid}:${gid}`, directory])

const asSelf = Effect.fnUntraced(function* (command: string, args: ReadonlyArray<string>) {
  const { code, output } = yield* run({ _tag: "Self" }, command, args)
  if (code !== 0) return yield* fail("FileSystem", `${command} ${args.join(" ")}: ${output.trim()}`)
})
