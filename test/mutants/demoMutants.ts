/** Mistakes of one line in the demo that stays: who may end its processes, and what its page may ask. */
import type { Mutant } from "./mutants.ts"

const control = "src/cli/demo/Control.ts"
const asked = { file: "test/e2e/DemoControl.test.ts", test: "the control is asked by a page of the demo's service" }

export const demoMutants: ReadonlyArray<Mutant> = [
  {
    name: "demo-leaves-its-processes",
    breaks: "after a kill -9 of the demo four processes go on, and take faults",
    file: "src/cli/ServiceProcess.ts",
    find: '"pipe", "ipc"]',
    replace: '"pipe"]',
    seenBy: { file: "test/e2e/DemoControl.test.ts", test: "a process ends when the one that has started it is killed" }
  },
  {
    name: "demo-control-without-token",
    breaks: "any program of this machine ends the demo's processes",
    file: control,
    find: 'if (ApiKeys.ownerOf(keys, ApiKeys.bearerOf(headers.authorization) ?? "") === undefined)',
    replace: "if (false)",
    seenBy: asked
  },
  {
    name: "demo-control-for-any-page",
    breaks: "a page of another site asks the control",
    file: control,
    find: "if (headers.origin !== undefined && headers.origin !== origin())",
    replace: "if (false)",
    seenBy: asked
  },
  {
    name: "demo-control-by-any-name",
    breaks: "a name that an attacker lets point at this machine reaches the control",
    file: control,
    find: "if (headers.host !== authority())",
    replace: "if (false)",
    seenBy: asked
  },
  {
    name: "demo-leaves-its-drill",
    breaks: "a demo that ends leaves a drill behind, and what it has broken",
    file: "src/cli/demo/DrillRuns.ts",
    find: "yield* Effect.addFinalizer(() => ended)",
    replace: "void ended",
    seenBy: { file: "test/e2e/DemoControl.test.ts", test: "a demo runs one drill at a time" }
  },
  {
    name: "console-asks-anybody",
    breaks: "the page of a demo may send what it reads to any server",
    file: "src/http/Console.ts",
    find: "`connect-src 'self'${demoControlUrl === undefined ? \"\" : ` ${demoControlUrl}`}`",
    replace: '`connect-src \'self\'${demoControlUrl === undefined ? "" : " *"}`',
    seenBy: { file: "test/http/ConsoleFiles.test.ts", test: "a demo's control is one more origin" }
  }
]
