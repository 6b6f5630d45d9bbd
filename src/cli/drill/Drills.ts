/** All drills, by name. */
import { lostAck } from "./LostAck.ts"
import { manual } from "./Manual.ts"
import { outage } from "./Outage.ts"
import { oversize } from "./Oversize.ts"
import { poison } from "./Poison.ts"
import { zombie } from "./Zombie.ts"

export const drills = { poison, oversize, outage, "lost-ack": lostAck, manual, zombie }
