// Rules of this house that no ready-made rule covers.

const message = "decode the rows by a schema (platform/Rows.ts), or say why this statement can't afford it"
const typesOf = (node) => node.typeArguments ?? node.typeParameters

/** Every tag with a type argument is a statement's, whatever its name: `sql`, `client`; and so is `sql.unsafe`. */
const decodedRows = {
  meta: { docs: { description: "a statement's rows are decoded by a schema (src/platform/Rows.ts), not asserted by a type argument" } },
  create: (context) => ({
    TaggedTemplateExpression(node) {
      if (typesOf(node) && node.tag.type === "Identifier") context.report({ node, message })
    },
    CallExpression(node) {
      const isUnsafe = node.callee.type === "MemberExpression" && node.callee.property.name === "unsafe"
      if (typesOf(node) && isUnsafe) context.report({ node, message })
    }
  })
}

export default { meta: { name: "paid-once" }, rules: { "decoded-rows": decodedRows } }
