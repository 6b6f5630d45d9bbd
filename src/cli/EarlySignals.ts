/**
 * A signal that comes before the program runs: nothing has begun, so there is nothing to put right, and leaving at once is a clean stop.
 * Without this it would meet Node's default, which is to die of it (status 143).
 */
const leave = () => process.exit(0)

/** From here on a signal ends the process cleanly. */
export const listen = (): void => {
  process.on("SIGINT", leave)
  process.on("SIGTERM", leave)
}

/** From here on somebody else listens. */
export const release = (): void => {
  process.off("SIGINT", leave)
  process.off("SIGTERM", leave)
}
