import config from "../vitest.config.ts"

/**
 * `npm run mutants`: each mutant's test in a separate vitest, some five seconds each on two cores. `npm test` only checks that each mutant
 * still matches its place.
 */
export default { ...config, test: { ...config.test, include: ["test/mutants/*.mutants.ts"] } }
