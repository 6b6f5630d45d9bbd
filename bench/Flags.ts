/** The flags and the environment that the commands share. */
import { Layer } from "effect"
import { Flag } from "effect/cli"
import { Environment, Side } from "./Environment.ts"

export const json = Flag.Boolean("json").pipe(
  Flag.withDescription("print JSON for programs to read"),
  Flag.withDefault(false)
)

export const rounds = (fallback: number) =>
  Flag.Int("rounds").pipe(Flag.withDescription("interleaved rounds"), Flag.withDefault(fallback))

export const events = (fallback: number) =>
  Flag.Int("events").pipe(Flag.withDescription("events a block"), Flag.withDefault(fallback))

export const seconds = (fallback: number) =>
  Flag.Int("seconds").pipe(Flag.withDescription("length of a block"), Flag.withDefault(fallback))

/** Postgres, with or without Kafka. `logical` lets a contender read the write-ahead log. */
export const environment = (options: { readonly kafka: boolean; readonly logical?: boolean }) =>
  Side.layer.pipe(Layer.provideMerge(Environment.layer(options)))
