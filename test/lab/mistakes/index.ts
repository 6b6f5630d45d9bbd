/** All planted mistakes, in the order of the way of an event. */
import { cancelWithoutRefund } from "./cancelWithoutRefund.ts"
import { chargeAfterRetention } from "./chargeAfterRetention.ts"
import { chargeBeforeIntent } from "./chargeBeforeIntent.ts"
import { dedupeOutside } from "./dedupeOutside.ts"
import { deleteThenArchive } from "./deleteThenArchive.ts"
import { dropByDay } from "./dropByDay.ts"
import { dualWrite } from "./dualWrite.ts"
import { idCursor } from "./idCursor.ts"
import { markBeforeAck } from "./markBeforeAck.ts"
import { heartbeatLessClaim } from "./heartbeatLessClaim.ts"
import { holdWithoutMoving } from "./holdWithoutMoving.ts"
import type { Mistake } from "./Mistake.ts"
import { newKeyPerRetry } from "./newKeyPerRetry.ts"
import { offsetFirst } from "./offsetFirst.ts"
import { inboxRedriveWithNewId } from "./inboxRedriveWithNewId.ts"
import { outageBurnsAttempts } from "./outageBurnsAttempts.ts"
import { parkedKeepsMark } from "./parkedKeepsMark.ts"
import { publishThenCommit } from "./publishThenCommit.ts"
import { redriveWithNewId } from "./redriveWithNewId.ts"
import { rightHalfFirst } from "./rightHalfFirst.ts"
import { skipLocked } from "./skipLocked.ts"
import { throwIntoClientLoop } from "./throwIntoClientLoop.ts"
import { transactionIdOrder } from "./transactionIdOrder.ts"
import { twoInFlight } from "./twoInFlight.ts"
import { unfencedFinish } from "./unfencedFinish.ts"

export const mistakes: ReadonlyArray<Mistake> = [
  dualWrite,
  publishThenCommit,
  idCursor,
  transactionIdOrder,
  skipLocked,
  twoInFlight,
  markBeforeAck,
  deleteThenArchive,
  outageBurnsAttempts,
  rightHalfFirst,
  holdWithoutMoving,
  redriveWithNewId,
  dropByDay,
  dedupeOutside,
  offsetFirst,
  parkedKeepsMark,
  inboxRedriveWithNewId,
  throwIntoClientLoop,
  chargeBeforeIntent,
  newKeyPerRetry,
  chargeAfterRetention,
  cancelWithoutRefund,
  unfencedFinish,
  heartbeatLessClaim
]
