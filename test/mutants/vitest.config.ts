import config from "../vitest.config.ts"

/**
 * `npm run mutants`: each mutant's test in a separate vitest, about four minutes on two cores. `npm test` only checks that each mutant
 * still matches its place.
 */
export default { ...config, test: { ...config.test, include: ["test/mutants/*.mutants.ts"] } }
