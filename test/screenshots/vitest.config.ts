/** `npm run screenshots`: the console's pictures, from a real service with prepared faults. No test, but the tests' Postgres and browser. */
import { defineConfig } from "vitest/config"

export default defineConfig({
  test: {
    include: ["test/screenshots/*.shots.ts"],
    globalSetup: ["test/support/globalSetup.ts", "test/support/browserGlobalSetup.ts"],
    testTimeout: 300_000,
    hookTimeout: 120_000
  }
})
