// Prints the true count of the test reports as the last line, and names each failed test above it, for a log that was cut. A run in
// which none ran is refused. Tests that need a real part throw by themselves under CI=true when it is missing. What may be skipped is
// what only root, or only a normal user, can try.
import { existsSync, readFileSync } from "node:fs"

const counts = { passed: 0, failed: 0, skipped: 0 }
/** How much of each failed test's message is printed: what was expected, and not the whole trace. */
const messageCharacters = 600
for (const path of process.argv.slice(2)) {
  // A suite that left no report has failed as a whole.
  if (!existsSync(path)) {
    console.log(`FAILED: the suite left no report at ${path}`)
    counts.failed++
    continue
  }
  const report = JSON.parse(readFileSync(path, "utf8"))
  // A file that could not be loaded has no tests that could fail. It counts as one failure.
  const unloaded = report.testResults.filter((file) => file.status === "failed" && file.assertionResults.length === 0)
  for (const file of report.testResults.filter(({ status }) => status === "failed")) {
    const tests = file.assertionResults.filter(({ status }) => status === "failed")
    for (const { fullName, failureMessages } of tests.length > 0
      ? tests
      : [{ fullName: "the whole file", failureMessages: [file.message] }]) {
      console.log(`FAILED: ${file.name}: ${fullName}\n${failureMessages.join("\n").slice(0, messageCharacters)}`)
    }
  }
  const failed = report.numFailedTests + unloaded.length
  counts.passed += report.numPassedTests
  counts.failed += failed === 0 && !report.success ? 1 : failed
  counts.skipped += report.numPendingTests + report.numTodoTests
}
console.log(`${counts.passed} passed, ${counts.failed} failed, ${counts.skipped} skipped`)
process.exit(counts.failed > 0 || counts.passed === 0 ? 1 : 0)
