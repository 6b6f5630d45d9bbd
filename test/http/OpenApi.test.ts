/** The document that describes the service, and the validator that holds every answer of these tests against it. */
import { Validator } from "@seriousme/openapi-schema-validator"
import { assert, describe, it, layer } from "@effect/vitest"
import { Effect } from "effect"
import { OpenApi } from "effect/http-api"
import { Api } from "../../src/http/Api.ts"
import { BoundAddress } from "../../src/http/HttpServer.ts"
import * as ApiDocument from "../support/ApiDocument.ts"
import { send, service } from "./Service.ts"

const document = OpenApi.fromApi(Api) as unknown as ApiDocument.OpenApiDocument

layer(service, { excludeTestServices: true })((it) => {
  it.effect("/openapi.json is valid by OpenAPI's own meta schema, and is what these tests hold answers against", () =>
    Effect.gen(function* () {
      const { url } = yield* BoundAddress
      const { json } = yield* send(`${url}/openapi.json`)
      const { errors, valid } = yield* Effect.promise(() => new Validator().validate(json))
      assert.isTrue(valid, JSON.stringify(errors))
      assert.deepStrictEqual(json, JSON.parse(JSON.stringify(document)))
    })
  )
})

it("every route that changes something declares how it refuses a body", () => {
  for (const [path, methods] of Object.entries(document.paths)) {
    for (const [method, { responses }] of Object.entries(methods)) {
      // Whichever it is, a body that is too large, of another type, or not wanted is refused before any handler.
      if (method !== "get") assert.includeMembers(Object.keys(responses), ["400", "413", "415"], `${method} ${path}`)
    }
  }
})

describe("an answer is refused", () => {
  const { problemsOf } = ApiDocument.make(document)
  const id = "01890a5d-ac96-774b-bcce-b302099a8057"
  const payment = {
    id,
    orderId: id,
    status: "captured",
    amountMinor: 5,
    currency: "EUR",
    capturedMinor: 5,
    refundedMinor: 0
  }
  const problem = { type: "about:blank", title: "Not Found", status: 404, detail: "no" }
  const ask = (
    change: Partial<ApiDocument.WireAnswer>,
    body: unknown,
    headers: Readonly<Record<string, string>> = { "content-type": "application/json" }
  ) =>
    problemsOf({
      method: "GET",
      target: `/payments/${id}`,
      status: 200,
      header: (name) => headers[name],
      text: typeof body === "string" ? body : JSON.stringify(body),
      ...change
    }).join("\n")
  const asProblem = { "content-type": "application/problem+json" }

  it("not where it fits", () => {
    assert.strictEqual(ask({}, payment), "")
    assert.strictEqual(ask({ status: 404 }, problem, asProblem), "")
  })
  it("with a status that the endpoint does not declare", () =>
    assert.include(ask({ status: 204 }, ""), "the status is not declared"))
  it("with a content type that is not declared", () =>
    assert.include(ask({}, payment, { "content-type": "text/html" }), "content type text/html"))
  it("with a body that is no JSON", () => assert.include(ask({}, "{"), "no JSON"))
  it("with a field that the schema does not have", () => assert.include(ask({}, { ...payment, x: 1 }), "additional"))
  it("with a field of another type", () => assert.include(ask({}, { ...payment, amountMinor: "5" }), "/amountMinor"))
  it("as an error that is no problem", () => {
    assert.include(ask({ status: 404 }, problem), "content type application/json")
    assert.include(ask({ status: 404, target: "/nowhere" }, "gone", {}), "no problem")
  })
  it("as a problem that gives another status", () =>
    assert.include(ask({ status: 404 }, { ...problem, status: 400 }, asProblem), "the status 400"))
  it("without a header that is required", () =>
    assert.include(
      ask({ method: "POST", target: `/orders/${id}/refund`, status: 202 }, "{}"),
      "the header location is missing"
    ))
  it("with a Location that is not declared", () =>
    assert.include(
      ask({}, payment, { "content-type": "application/json", location: "/x" }),
      "location is not declared"
    ))
})
