/** Pages of a list whose order is that of a key. */

/** A page: of rows, of which one more than `limit` was asked for, which tells whether there is a next page. */
export const byId = <A extends { readonly id: string }>(found: ReadonlyArray<A>, limit: number) =>
  by(found, limit, ({ id }): A["id"] => id)

/** {@link byId}, where the cursor is not the column `id`. */
export const by = <A, Cursor>(found: ReadonlyArray<A>, limit: number, cursorOf: (row: A) => Cursor) => {
  const items = found.slice(0, limit)
  const last = found.length > limit ? items.at(-1) : undefined
  return { items, nextCursor: last === undefined ? null : cursorOf(last) }
}
