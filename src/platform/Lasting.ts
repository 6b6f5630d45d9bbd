/** Durations in the words of a person. */

/** As long as a person would say: `42 s`, `14 min`, `3 h`, `5 days`. */
export const lasting = (seconds: number): string =>
  seconds < 120
    ? `${Math.round(seconds)} s`
    : seconds < 7_200
      ? `${Math.round(seconds / 60)} min`
      : seconds < 172_800
        ? `${Math.round(seconds / 3_600)} h`
        : `${Math.round(seconds / 86_400)} days`
