/** Lists that come in pages. */

/** A page of a list. `nextCursor` is where the next page begins; null on the last page. */
export interface Page<A, Cursor extends string = string> {
  readonly items: ReadonlyArray<A>
  readonly nextCursor: Cursor | null
}

/** A page: of rows, of which one more than `limit` was asked for, which tells whether there is a next page. */
export const pageBy = <A, Cursor extends string>(
  found: ReadonlyArray<A>,
  limit: number,
  cursorOf: (item: A) => Cursor
): Page<A, Cursor> => {
  const items = found.slice(0, limit)
  const last = items.at(-1)
  return { items, nextCursor: found.length > limit && last !== undefined ? cursorOf(last) : null }
}

/** {@link pageBy}, where an item's cursor is its id. */
export const page = <A extends { readonly id: string }>(found: ReadonlyArray<A>, limit: number): Page<A, A["id"]> =>
  pageBy(found, limit, ({ id }) => id)
