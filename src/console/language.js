/** The browser's language, as `Intl` takes it. */

const isTag = () => {
  try {
    return Intl.getCanonicalLocales(navigator.language).length > 0
  } catch {
    return false
  }
}

// Chromium under the locale `C` calls its language `en-US@posix`, which is no language tag. uPlot hands it to `Intl` while it is being loaded, and that
// throws. So this module is imported before it.
if (!isTag()) Object.defineProperty(navigator, "language", { value: "en-US", configurable: true })

/** The language of figures and times. */
export const language = navigator.language
