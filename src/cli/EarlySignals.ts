/**
 * Handles a signal that comes before the program runs. Nothing has begun, so exiting at once is a clean stop. Node's default would end the process
 * with status 143.
 */
const leave = () => process.exit(0)

/** From now on a signal ends the process cleanly. */
export const listen = (): void => {
  process.on("SIGINT", leave)
  process.on("SIGTERM", leave)
}

/** From now on another handler takes signals. */
export const release = (): void => {
  process.off("SIGINT", leave)
  process.off("SIGTERM", leave)
}
