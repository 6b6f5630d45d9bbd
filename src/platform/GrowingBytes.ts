/**
 * Bytes that arrive in pieces, in one buffer that grows. A list of the pieces would cost more than a hundred bytes for each of them, and
 * whoever sends decides how small they are.
 */
export class GrowingBytes {
  // Most bodies fit.
  #held = Buffer.allocUnsafe(4_096)
  #length = 0

  /** How many bytes have been added. */
  get length(): number {
    return this.#length
  }

  add(piece: Uint8Array): void {
    const length = this.#length + piece.length
    if (length > this.#held.length) {
      // Twice as much: each byte is copied a few times at most.
      const larger = Buffer.allocUnsafe(Math.max(length, 2 * this.#held.length))
      larger.set(this.#held.subarray(0, this.#length))
      this.#held = larger
    }
    this.#held.set(piece, this.#length)
    this.#length = length
  }

  /** All of them. Valid until the next one is added. */
  get bytes(): Buffer {
    return this.#held.subarray(0, this.#length)
  }
}
