// Prints the true count of a test report as the last line, and refuses a run in which a test was skipped or none ran.
import { readFileSync } from "node:fs"

const report = JSON.parse(readFileSync(process.argv[2], "utf8"))
const passed = report.numPassedTests
// A file that could not even be loaded has no tests to fail; it counts as one failure.
const unloaded = report.testResults.filter((file) => file.status === "failed" && file.assertionResults.length === 0).length
const failed = report.numFailedTests + unloaded
const skipped = report.numPendingTests + report.numTodoTests
if (skipped > 0) console.error(`${skipped} tests were skipped: here every test has to run`)
console.log(`${passed} passed, ${failed} failed, ${skipped} skipped`)
process.exit(failed > 0 || skipped > 0 || passed === 0 || !report.success ? 1 : 0)
