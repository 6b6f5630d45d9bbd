import { defineConfig } from "vitest/config"

export default defineConfig({
  test: {
    include: ["test/**/*.test.ts"],
    globalSetup: ["test/support/globalSetup.ts", "test/support/kafkaGlobalSetup.ts"],
    // Two cores: more files side by side only make each other slow, and Postgres and Kafka want a share too.
    maxWorkers: 2,
    // A bound for what hangs, far above what any test takes on a slow machine.
    testTimeout: 60_000,
    hookTimeout: 60_000
  }
})
