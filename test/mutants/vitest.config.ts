import config from "../vitest.config.ts"

/** `npm run mutants`: each mutant's test in a vitest of its own, some four minutes on two cores. Too long for `npm test`, which looks whether they fit. */
export default { ...config, test: { ...config.test, include: ["test/mutants/*.mutants.ts"] } }
