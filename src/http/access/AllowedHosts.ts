/**
 * The hosts that this server answers for, against DNS rebinding. A page of evil.example can let that name point at 127.0.0.1. Its visitor's
 * browser then takes the service for a part of evil.example. It still sends `Host: evil.example`, which is refused.
 *
 * Allowed are loopback's names, HOST, PUBLIC_HOSTS, and the address at which the connection arrived. An attacker can give none of them a
 * meaning of his own. Orchestrators probe by address.
 */
import { Context } from "effect"
import type * as Http from "node:http"
import { isIPv4, isIPv6 } from "node:net"
import { badRequest, Problem } from "../Problems.ts"

/** A host, and its port where it has one. Names are in small letters, IPv6 addresses in brackets. */
export interface Authority {
  readonly name: string
  readonly port: string | undefined
}

/** What the server calls itself. */
export const HostSettings = Context.Reference<{
  /** The value of HOST. */
  readonly host: string
  /** The value of PUBLIC_HOSTS. One without a port stands for every port. */
  readonly publicHosts: ReadonlyArray<Authority>
}>("paid-once/http/HostSettings", { defaultValue: () => ({ host: "127.0.0.1", publicHosts: [] }) })

/** RFC 3986's authority, without a user. Undefined where `text` is none. */
export const parseAuthority = (text: string): Authority | undefined => {
  const match = /^(\[[0-9a-f:.]{2,45}\]|[a-z0-9._-]{1,253})(?::(\d{1,5}))?$/.exec(text.toLowerCase())
  const name = match?.[1]
  if (name === undefined) return undefined
  if (!name.startsWith("[")) return { name, port: match?.[2] }
  return isIPv6(name.slice(1, -1)) ? { name: bracketed(name.slice(1, -1)), port: match?.[2] } : undefined
}

/** An IPv6 address has many spellings: the URL parser knows the one of RFC 5952. */
const bracketed = (address: string) => new URL(`http://[${address}]`).hostname

/** An address as a Host header has it: an IPv4 address that arrived at a socket of both kinds is an IPv4 address. */
const hostOf = (address: string): string => {
  const plain = address.replace(/^::ffff:(?=\d+\.)/, "").replace(/%.*$/, "")
  return isIPv6(plain) ? bracketed(plain) : plain.toLowerCase()
}

/** Names that lead nowhere but to this machine, whoever resolves them. */
export const isLoopback = (host: string): boolean => {
  const name = hostOf(host)
  return name === "localhost" || name === "[::1]" || (isIPv4(name) && name.startsWith("127."))
}

/** The hosts of a server. */
export interface AllowedHosts {
  /** The problem of a request that names no host of ours, or none as HTTP wants it; undefined where it names one. */
  readonly refusal: (request: Http.IncomingMessage) => Problem | undefined
  /** Whether this authority is the one of a page of ours: with the port that the request came to, or as PUBLIC_HOSTS has it. */
  readonly isOrigin: (origin: Authority, request: Http.IncomingMessage) => boolean
}

export const make = ({ host, publicHosts }: (typeof HostSettings)["Service"]): AllowedHosts => {
  // A wildcard is no name. A browser takes 0.0.0.0 to this machine, and pages of other sites may use that.
  const own = ["0.0.0.0", "::"].includes(host) ? undefined : hostOf(host)
  const isOwn = (name: string, { socket }: Http.IncomingMessage) =>
    name === own || isLoopback(name.replace(/^\[(.*)\]$/, "$1")) || name === hostOf(socket.localAddress ?? "")
  const isPublic = (authority: Authority) =>
    publicHosts.some(({ name, port }) => name === authority.name && (port === undefined || port === authority.port))
  const isAllowed = (authority: Authority, request: Http.IncomingMessage) =>
    isOwn(authority.name, request) || isPublic(authority)

  return {
    refusal: (request) => {
      const named = hostsOf(request)
      if (named instanceof Problem) return named
      const foreign = named.find((authority) => !isAllowed(authority, request))
      return foreign === undefined
        ? undefined
        : new Problem({
            status: 421,
            detail: `this server does not answer for ${foreign.name}: PUBLIC_HOSTS names its hosts`
          })
    },
    isOrigin: (origin, request) =>
      isPublic(origin) ||
      (isOwn(origin.name, request) && origin.port === parseAuthority(request.headers.host ?? "")?.port)
  }
}

const refuse = (message: string) => badRequest([{ in: "header", pointer: "/host", message }])

/**
 * The hosts that a request names, in its target and its Host header. RFC 9112, section 3.2: a target with a host of its own has the same as
 * the header. HTTP/1.0 may lack the header, and no browser speaks it. SingleHeaders.ts has refused what else lacks it, or has two.
 */
const hostsOf = (request: Http.IncomingMessage): ReadonlyArray<Authority> | Problem => {
  const inTarget = /^[a-z][a-z0-9+.-]*:\/\/([^/?#]*)/i.exec(request.url ?? "")?.[1]
  const named = [inTarget, request.headers.host].filter((text) => text !== undefined).map(parseAuthority)
  if (!named.every((authority) => authority !== undefined)) return refuse("must be a host, with or without a port")
  const [first, second] = named
  // A proxy in front may go by the one, and this server by the other.
  return second !== undefined && (second.name !== first?.name || second.port !== first.port)
    ? refuse("must be the host of the request's target")
    : named
}
