import { defineConfig, mergeConfig } from "vitest/config"
import { planted } from "./mutants/planted.ts"

export default mergeConfig(
  defineConfig({
    test: {
      include: ["test/**/*.test.ts"],
      globalSetup: ["test/support/globalSetup.ts", "test/support/kafkaGlobalSetup.ts"],
      // Two cores: more files side by side only make each other slow, and Postgres and Kafka want a share too.
      maxWorkers: 2,
      // A process and all imports anew for each of a hundred files took a tenth of the run. What a file shares with others, it closes with its layers.
      isolate: false,
      // A bound for what hangs, far above what any test takes on a slow machine. Waits have smaller ones, and say what they waited for.
      testTimeout: 120_000,
      hookTimeout: 120_000
    }
  }),
  planted()
)
