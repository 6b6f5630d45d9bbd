/** The invariants of tasks. */
import type { Invariant, Violation, World } from "./Oracle.ts"
import { labTask, maxRuns } from "./TaskRequests.ts"

const broken = (invariant: Invariant, detail: string): Violation => ({ invariant, detail })

export const taskSafety = ({ committed: { tasks, work } }: World): Violation | undefined => {
  const own = tasks.filter(({ type }) => type === labTask.name)
  for (const { attempts, error, id, state } of own) {
    const times = work.filter(({ task }) => task === id).length
    // A task's work commits with its end, and no run follows.
    if (times !== (state === "completed" ? 1 : 0))
      return broken("a task does its work once", `a task is ${state}, and its work is there ${times} times`)
    if (attempts > maxRuns) return broken("every task ends", `a task is run for the ${attempts}th time, of ${maxRuns}`)
    if (state === "dead" && error === null) return broken("every task ends", "a task is dead, and nothing says why")
  }
  return undefined
}

export const tasksAtRest = ({ committed: { tasks, work }, inLine, workDone }: World): Violation | undefined => {
  for (const { id, state, type } of tasks) {
    if (!["completed", "dead", "cancelled"].includes(state) || (state === "dead" && type !== labTask.name))
      return broken("every task ends", `a task of type ${type} is ${state}, and nobody will take it further`)
    if (state === "completed" && type === labTask.name && !workDone.has(id))
      return broken("a task does its work once", "a task is completed, and nobody ran it")
  }
  const places = inLine.map((id) => work.findIndex(({ task }) => task === id)).filter((place) => place >= 0)
  return places.every((place, index) => index === 0 || place > places[index - 1]!)
    ? undefined
    : broken("a task does its work once", "tasks of one line did their work in another order")
}
