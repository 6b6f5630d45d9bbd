/**
 * Resolves imports as Node does, but asks the disk once for each directory. A start imports some thousand modules, and Node looks up each import
 * statement by itself, several times: that was a third of a start.
 *
 * An ES module names the file that it imports in full. Once Node has found one file of a directory and ending, the next one's URL is enough. A
 * package's name stands for the same file in all files of a directory. Node resolves everything else, and `require`, by itself.
 */
import { registerHooks, type ResolveFnOutput } from "node:module"

const directoryOf = (url: string): string => url.slice(0, url.lastIndexOf("/") + 1)
/** The file's directory and its ending. Node derives the format from both: the directory decides which package.json counts. */
const kindOf = (url: string): string => directoryOf(url) + url.slice(url.lastIndexOf("."))

/** From now on imports are resolved so. */
export const install = (): void => {
  const formats = new Map<string, string>()
  const packages = new Map<string, ResolveFnOutput>()
  registerHooks({
    resolve(specifier, context, next) {
      const { conditions, importAttributes, parentURL } = context
      const isPlainImport = !conditions.includes("require") && Object.keys(importAttributes).length === 0
      if (parentURL === undefined || !isPlainImport) return next(specifier, context)
      if (!specifier.startsWith(".")) {
        const key = `${directoryOf(parentURL)} ${specifier}`
        const known = packages.get(key) ?? { ...next(specifier, context), shortCircuit: true }
        packages.set(key, known)
        return known
      }
      const url = new URL(specifier, parentURL).href
      const format = formats.get(kindOf(url))
      if (format !== undefined) return { url, format, shortCircuit: true }
      const found = next(specifier, context)
      // Another URL is the target of a link, and a format of another kind is found in the file's text.
      if (found.url === url && found.format?.startsWith("module") === true) formats.set(kindOf(url), found.format)
      return found
    }
  })
}
