/**
 * Lists of what is under way, where members come and go with each request: an array, and no `Set` or `Map`.
 *
 * V8 replaces the table of a `Set` after every few deletions, and the old table leads to the new one. A table that has outlived two collections of
 * the young heap counts as alive in all further ones. Then all tables after it do, too, with the members that they had when they were replaced.
 * They stay until the whole heap is collected. With sets POST /orders took a tenth more CPU (docs/performance-log.md).
 */

/** Removes the member, if it is there. The list is as short as there are requests under way. */
export const remove = <A>(members: Array<A>, member: A): void => {
  const index = members.indexOf(member)
  if (index >= 0) members.splice(index, 1)
}
