// Rules of this house that no ready-made rule covers.

const decodedRows = {
  meta: { docs: { description: "a statement's rows are decoded by a schema (src/platform/Rows.ts), not asserted by a type argument" } },
  create: (context) => ({
    TaggedTemplateExpression(node) {
      const types = node.typeArguments ?? node.typeParameters
      const isSql = node.tag.type === "Identifier" && node.tag.name === "sql"
      if (isSql && types) context.report({ node, message: "decode the rows by a schema (platform/Rows.ts), or say why this statement can't afford it" })
    }
  })
}

export default { meta: { name: "paid-once" }, rules: { "decoded-rows": decodedRows } }
