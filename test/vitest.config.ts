import { defineConfig, mergeConfig } from "vitest/config"
import { planted } from "./mutants/planted.ts"

/**
 * Suites that take long: the lab's search, soaks, whole services as processes, brokers that lose their leaders, the package in a stranger's
 * project. `npm run test:long` runs them; `npm test` runs all others. CI runs both.
 */
export const long = [
  "test/application/doctor/*.test.ts",
  "test/application/reconciliation/{Differences,LostCursor,LostEvent,LostMarks,Many,OtherShell,RolledForward,Skipped,TwoDamages,UnderWay}.test.ts",
  "test/brokers/kafkajs/{ConsumerStop,Consumers,KafkaAccess,KafkaBroker,KafkaBrokerLeaders,LocalKafka,Outage,TopicChecks}.test.ts",
  "test/console/*.test.ts",
  "test/docs/{Alerts,AlertScrapes,Reference}.test.ts",
  "test/e2e/*.test.ts",
  "test/fuzz/Fuzzer.test.ts",
  "test/http/{AdminDeadLetters,GatewayClient}.test.ts",
  "test/http/{Dashboard,DispatcherHealth,FullDisk}.test.ts",
  "test/inbox/{Compositions,Culprits}.test.ts",
  "test/http/{AdminOverview,AdminStream,Journey}.test.ts",
  "test/lab/Lab.test.ts",
  "test/lift/*.test.ts",
  "test/operations/{*Command,Alone,Maintenance,OperatorDatabase}.test.ts",
  "test/operations/doctor/{Findings,Surroundings}.test.ts",
  "test/platform/ControlConnection.test.ts",
  "test/postgres/embedded/*.test.ts",
  "test/postgres/Roles.test.ts",
  "test/soak/**/*.test.ts",
  "test/tasks/Processes.test.ts"
]
const isLong = process.env["SUITE"] === "long"
/** A file that is named on the command line runs, whichever suite it belongs to. */
const isNamed = process.argv.slice(2).some((argument) => /^(\.\/)?test\/(?!.*vitest\.config)/.test(argument))

export default mergeConfig(
  defineConfig({
    test: {
      include: isLong ? long : ["test/**/*.test.ts"],
      exclude: isLong || isNamed ? [] : long,
      globalSetup: [
        "test/support/globalSetup.ts",
        "test/support/kafkaGlobalSetup.ts",
        "test/support/browserGlobalSetup.ts"
      ],
      // Two cores: more files side by side only make each other slow, and Postgres and Kafka want a share too.
      maxWorkers: 2,
      // A new process and all imports for each of a hundred files took a tenth of the run. A file closes shared resources with its layers.
      isolate: false,
      // A bound for what hangs, far above what any test takes on a slow machine. Waits have smaller ones, and say what they waited for.
      testTimeout: 120_000,
      hookTimeout: 120_000
    }
  }),
  planted()
)
