// Prints the true count of a test report as the last line, and refuses a run in which none ran. Tests that need a real part throw
// by themselves under CI=true when it is missing; what may be skipped is what only root, or only a normal user, can try.
import { readFileSync } from "node:fs"

const report = JSON.parse(readFileSync(process.argv[2], "utf8"))
const passed = report.numPassedTests
// A file that could not even be loaded has no tests to fail; it counts as one failure.
const unloaded = report.testResults.filter((file) => file.status === "failed" && file.assertionResults.length === 0).length
const failed = report.numFailedTests + unloaded
const skipped = report.numPendingTests + report.numTodoTests
console.log(`${passed} passed, ${failed} failed, ${skipped} skipped`)
process.exit(failed > 0 || passed === 0 || !report.success ? 1 : 0)
