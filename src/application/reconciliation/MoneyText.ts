/** Amounts in the texts of a difference, as `Money.format` writes them, where a statement makes the text. */
import { digitsOtherThanTwo } from "../../domain/Money.ts"

const digits = [...digitsOtherThanTwo].map(([currency, count]) => `WHEN '${currency}' THEN ${count}`).join(" ")

/** SQL: the amount in minor units with its currency, for a person to read. Both are SQL. An amount that is no whole number is written as it is. */
export const moneyText = (minor: string, currency: string): string => `
  (SELECT concat_ws(' ', CASE
     WHEN d = 0 OR m !~ '^[0-9]+$' THEN m
     ELSE left(repeat('0', d + 1 - length(m)) || m, -d) || '.' || right(repeat('0', d - length(m)) || m, d) END, c)
   FROM (SELECT (${minor})::text AS m, (${currency})::text AS c, CASE (${currency})::text ${digits} ELSE 2 END AS d) AS money)`
