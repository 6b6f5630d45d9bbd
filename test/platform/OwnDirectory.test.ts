/** Which directories are taken for files that no other user must replace. */
import { afterEach, assert, beforeEach, describe, it } from "@effect/vitest"
import { chmodSync, existsSync, lchownSync, mkdirSync, mkdtempSync, rmSync, statSync, symlinkSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as OwnDirectory from "../../src/platform/OwnDirectory.ts"

const isRoot = process.getuid?.() === 0
const stranger = 65_534 // nobody

let root = ""
beforeEach(() => void (root = mkdtempSync(join(tmpdir(), "own-directory-"))))
afterEach(() => rmSync(root, { recursive: true, force: true }))

/** A directory with exactly this mode, whatever the umask. */
const made = (name: string, mode: number, uid?: number) => {
  const path = join(root, name)
  mkdirSync(path)
  if (uid !== undefined) lchownSync(path, uid, uid)
  chmodSync(path, mode)
  return path
}

const linked = (from: string, to: string, uid?: number) => {
  symlinkSync(to, from)
  if (uid !== undefined) lchownSync(from, uid, uid)
  return from
}

const refusal = async (directory: string) => {
  const error = await OwnDirectory.make(directory).then(() => undefined, String)
  assert.isDefined(error, `${directory} was taken`)
  return error
}
const modeOf = (path: string) => statSync(path).mode & 0o777

describe("a directory of our own", () => {
  it("is made with the levels above it, closed to others", async () => {
    await OwnDirectory.make(join(root, "a/b"))
    for (const name of ["a", "a/b"]) assert.strictEqual(modeOf(join(root, name)) & 0o066, 0)
  })

  it("is closed to its group, where a umask has let that in", async () => {
    const directory = made("data", 0o2775)
    await OwnDirectory.make(directory)
    assert.strictEqual(modeOf(directory), 0o755)
  })

  it("may be reached by links of ours, and below our directories that a group can write to", async () => {
    const parent = made("parent", 0o775)
    await OwnDirectory.make(join(linked(join(root, "link"), parent), "data"))
    assert.isTrue(existsSync(join(parent, "data")))
    await OwnDirectory.make(join(linked(join(root, "relative"), "./parent/../parent"), "data"))
  })

  it("may be below one like /tmp, in which nobody replaces what is another's", async () => {
    await OwnDirectory.make(join(made("tmp", 0o1777), "data"))
  })

  it("is not below one in which everybody can replace it", async () => {
    const parent = made("open", 0o777)
    assert.include(await refusal(join(parent, "data")), `everybody can replace what is in ${parent}`)
    assert.isFalse(existsSync(join(parent, "data")))
  })

  it("is none where links lead in a circle", async () => {
    const link = linked(join(root, "circle"), "circle")
    assert.include(await refusal(link), "too many links")
  })

  it.skipIf(!isRoot)("is not behind a stranger's link, and nothing is made there", async () => {
    const target = made("target", 0o700)
    const link = linked(join(made("tmp", 0o1777), "link"), target, stranger)
    for (const path of [link, join(link, "data")]) {
      assert.include(await refusal(path), `${link} is a link of user ${stranger}`)
    }
    assert.isFalse(existsSync(join(target, "data")))
  })

  it.skipIf(!isRoot)("is not below a stranger's directory, who could replace it", async () => {
    const parent = made("strangers", 0o755, stranger)
    for (const path of [join(parent, "data"), join(linked(join(root, "link"), parent), "data")]) {
      assert.include(await refusal(path), `${parent} belongs to user ${stranger}`)
    }
    assert.isFalse(existsSync(join(parent, "data")))
  })
})
