/**
 * Encodes records as Kafka's record batch, format 2, uncompressed: what a produce request carries and what lies in the log.
 *
 * kafkajs 2.2.4 has an encoder, which makes a growing buffer for each record and each header: with the five headers of an event it
 * is the most expensive step of all by far (`npm run bench -- drain` shows kafkajs alone). This one measures, allocates once and
 * writes once; test/brokers/kafkajs/RecordBatch.test.ts holds its bytes against kafkajs' own.
 *
 * Source: https://kafka.apache.org/documentation/#recordbatch
 */
import { utf8Length, writeText } from "../../platform/Utf8.ts"
import type { BrokerRecord } from "../Broker.ts"
import { crc32c } from "./Crc32c.ts"

/** Bytes before the first record: base offset to record count. */
const headBytes = 61
/** Where the part begins that the batch's own length counts, and the part that the checksum covers. */
const lengthEnd = 12
const crcStart = 17
const crcEnd = 21

/** No idempotence (DESIGN.md 2.5): no producer id, no epoch, no sequence. */
const none = -1

/** Bytes of a length as Kafka writes it: zigzag, seven bits a byte. Lengths are not negative and below 2³⁰. */
const varintLength = (value: number): number => {
  let bytes = 1
  for (let rest = value >>> 6; rest !== 0; rest >>>= 7) bytes++
  return bytes
}

const writeVarint = (target: Buffer, value: number, start: number): number => {
  let place = start
  let rest = value << 1
  while (rest > 0x7f) {
    target[place++] = (rest & 0x7f) | 0x80
    rest >>>= 7
  }
  target[place++] = rest
  return place
}

const sized = (bytes: number): number => varintLength(bytes) + bytes

/** The record's length without the length itself. Its three fixed bytes: attributes, and a timestamp delta of zero. */
const bodyLength = ({ headers, key, value }: BrokerRecord, index: number): number => {
  let count = 0
  let bytes = 2 + varintLength(index) + sized(utf8Length(key)) + sized(value.length)
  for (const name in headers) {
    count++
    bytes += sized(utf8Length(name)) + sized(utf8Length(headers[name]!))
  }
  return bytes + varintLength(count)
}

const writeSizedText = (target: Buffer, text: string, start: number): number => {
  const length = utf8Length(text)
  return writeText(target, text, length, writeVarint(target, length, start))
}

const writeRecord = (
  target: Buffer,
  { headers, key, value }: BrokerRecord,
  index: number,
  body: number,
  start: number
): number => {
  let place = writeVarint(target, body, start)
  target[place++] = 0
  target[place++] = 0
  place = writeVarint(target, index, place)
  place = writeSizedText(target, key, place)
  place = writeVarint(target, value.length, place)
  target.set(value, place)
  place += value.length
  let count = 0
  for (const _ in headers) count++
  place = writeVarint(target, count, place)
  for (const name in headers) {
    place = writeSizedText(target, name, place)
    place = writeSizedText(target, headers[name]!, place)
  }
  return place
}

/**
 * The batch of `records`, all stamped with `timestampMillis`; the broker fills in the base offset. `room` bytes in front of it are left
 * for whoever sends it, so that a megabyte need not be copied for the sake of a head.
 */
export const encode = (records: ReadonlyArray<BrokerRecord>, timestampMillis: number, room = 0): Buffer => {
  const bodies = records.map(bodyLength)
  const total = bodies.reduce((sum, body) => sum + sized(body), headBytes)
  // Not zeroed: every byte of it is written below, or by whoever asked for room.
  const whole = Buffer.allocUnsafe(room + total)
  const target = whole.subarray(room)
  target.writeBigInt64BE(0n, 0)
  target.writeInt32BE(total - lengthEnd, 8)
  target.writeInt32BE(none, lengthEnd)
  target.writeInt8(2, 16)
  target.writeInt16BE(0, crcEnd)
  target.writeInt32BE(records.length - 1, 23)
  target.writeBigInt64BE(BigInt(timestampMillis), 27)
  target.writeBigInt64BE(BigInt(timestampMillis), 35)
  target.writeBigInt64BE(BigInt(none), 43)
  target.writeInt16BE(none, 51)
  target.writeInt32BE(none, 53)
  target.writeInt32BE(records.length, 57)
  let place = headBytes
  for (let index = 0; index < records.length; index++) {
    place = writeRecord(target, records[index]!, index, bodies[index]!, place)
  }
  target.writeUInt32BE(crc32c(target, crcEnd), crcStart)
  return whole
}
