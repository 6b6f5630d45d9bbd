/** The pages: their paths, their place in the menu, and the module of each, which is loaded when the page is opened. */

/**
 * @typedef {object} Page
 * @property {string} path
 * @property {string} title
 * @property {string} group
 * @property {string} [shortcut] After `g`.
 * @property {(segments: ReadonlyArray<string>) => Promise<{ readonly Page: import("preact").ComponentType<{ readonly segments: ReadonlyArray<string> }> }>} load
 *   `segments` are the path's parts after the page's own. The module exports the component `Page`.
 */

/** @type {ReadonlyArray<Page>} */
export const pages = [
  { path: "/console", title: "Overview", group: "Watch", shortcut: "o", load: () => import("./pages/Overview.js") },
  {
    path: "/console/orders",
    title: "Orders",
    group: "Watch",
    shortcut: "p",
    load: ([id]) => (id === undefined ? import("./pages/Orders.js") : import("./pages/Order.js"))
  },
  {
    path: "/console/events",
    title: "Events",
    group: "Watch",
    shortcut: "e",
    load: ([id]) => (id === undefined ? import("./pages/Events.js") : import("./pages/Event.js"))
  },
  {
    path: "/console/dead-letters",
    title: "Dead letters",
    group: "Needs a person",
    shortcut: "d",
    load: ({ length }) => (length === 0 ? import("./pages/DeadLetters.js") : import("./pages/DeadLetter.js"))
  },
  {
    path: "/console/payments",
    title: "Payments",
    group: "Needs a person",
    shortcut: "y",
    load: ({ length }) => (length === 0 ? import("./pages/Payments.js") : import("./pages/Payment.js"))
  },
  {
    path: "/console/tasks",
    title: "Tasks",
    group: "Needs a person",
    shortcut: "k",
    load: ({ length }) => (length === 0 ? import("./pages/Tasks.js") : import("./pages/Task.js"))
  },
  {
    path: "/console/mail",
    title: "Mail",
    group: "Needs a person",
    shortcut: "m",
    load: () => import("./pages/Mail.js")
  },
  {
    path: "/console/reconciliation",
    title: "Reconciliation",
    group: "Needs a person",
    shortcut: "c",
    load: () => import("./pages/Reconciliation.js")
  },
  {
    path: "/console/doctor",
    title: "Doctor",
    group: "Operate",
    shortcut: "h",
    load: () => import("./pages/Doctor.js")
  },
  {
    path: "/console/break-it",
    title: "Break it",
    group: "Operate",
    shortcut: "b",
    load: () => import("./pages/BreakIt.js")
  },
  { path: "/console/audit", title: "Audit", group: "Operate", shortcut: "a", load: () => import("./pages/Audit.js") },
  {
    path: "/console/runbooks",
    title: "Runbooks",
    group: "Operate",
    shortcut: "r",
    load: () => import("./pages/Runbooks.js")
  },
  {
    path: "/console/settings",
    title: "Settings",
    group: "Operate",
    shortcut: "s",
    load: () => import("./pages/Settings.js")
  }
]

/**
 * The page of a path's parts after `/console`, and what follows its own path.
 *
 * @param {ReadonlyArray<string>} segments
 */
export const pageOf = (segments) => {
  const [name = "", ...rest] = segments
  const page = pages.find(({ path }) => path === (name === "" ? "/console" : `/console/${name}`))
  return page === undefined ? undefined : { page, rest }
}
