/** Mistakes of the doctor: what it would not see, or would tell wrongly. */
import type { Mutant } from "./mutants.ts"

const room = "src/operations/doctor"
const fixes = "test/operations/doctor/Fixes.test.ts"
const findings = "test/operations/doctor/Findings.test.ts"
const restore = "test/e2e/Restore.test.ts"
const surroundings = "test/operations/doctor/Surroundings.test.ts"

export const doctorMutants: ReadonlyArray<Mutant> = [
  {
    name: "doctor-takes-failing-tasks",
    breaks: "a gateway that answers 500 to every charge for hours is well",
    file: `${room}/TaskChecks.ts`,
    find: "SELECT task_type, last_error, (history -> 0 ->> 'at')::timestamptz AS since",
    replace: "SELECT task_type, last_error, clock_now() AS since",
    seenBy: { file: findings, test: "tasks-succeed: what a task needs has been away for some time" }
  },
  {
    name: "doctor-misses-no-constraint",
    breaks: "a primary key that is gone is not found again once its index is back",
    file: `${room}/ConstraintChecks.ts`,
    find: "if (one === undefined) return [missing(definition, indexes)]",
    replace: "if (one === undefined) return []",
    seenBy: { file: findings, test: "constraints: the index of a primary key is back" }
  },
  {
    name: "doctor-takes-any-rule",
    breaks: "a constraint that allows more counts as the migrations'",
    file: `${room}/ConstraintChecks.ts`,
    find: "? [] : [another(definition, one)]",
    replace: "? [] : []",
    seenBy: { file: findings, test: "constraints: a rule allows more" }
  },
  {
    name: "doctor-takes-tables-as-they-are",
    breaks: "a trigger, a default or a NOT NULL is gone, and nobody hears of it",
    file: `${room}/TableChecks.ts`,
    find: "if (there === expected) return []",
    replace: "if (there !== undefined) return []",
    seenBy: { file: findings, test: "tables: a column may be NULL" }
  },
  {
    name: "doctor-takes-any-function",
    breaks: "a payment gets no time any more, and nobody hears of it",
    file: `${room}/FunctionChecks.ts`,
    find: ".filter(({ line }) => !there.has(line))",
    replace: ".filter(({ line }) => !names.has(nameOf(line)))",
    seenBy: { file: findings, test: "functions: a trigger's function does nothing" }
  },
  {
    name: "doctor-takes-added-triggers",
    breaks: "somebody's trigger changes or refuses what the service writes, and nobody hears of it",
    file: `${room}/TableChecks.ts`,
    find: "triggerIn(statement) !== null && !keys.has(keyOf(statement))",
    replace: "triggerIn(statement) !== null && keys.size === 0",
    seenBy: { file: findings, test: "tables: somebody has added a trigger to a partition" }
  },
  {
    name: "doctor-takes-any-view",
    breaks: "repairs go by a view that somebody has replaced",
    file: `${room}/TableChecks.ts`,
    find: "if (there === expected) return []",
    replace: 'if (there === expected || there?.startsWith("CREATE VIEW") === true) return []',
    seenBy: { file: findings, test: "tables: a view was replaced by hand" }
  },
  {
    name: "doctor-takes-any-sequence",
    breaks: "the queue's numbers begin again, and nobody was warned",
    file: `${room}/TableChecks.ts`,
    find: 'if (kind === "SEQUENCE" && there === undefined) return []',
    replace: 'if (kind === "SEQUENCE") return []',
    seenBy: { file: findings, test: "tables: a sequence begins again at its end" }
  },
  {
    name: "doctor-takes-any-type",
    breaks: "a column holds less than the code writes, and nobody was warned",
    file: `${room}/TableChecks.ts`,
    find: "               format_type(a.atttypid, a.atttypmod),",
    replace:
      "               CASE format_type(a.atttypid, a.atttypmod) WHEN 'integer' THEN 'bigint' ELSE format_type(a.atttypid, a.atttypmod) END,",
    seenBy: { file: findings, test: "tables: a column has another type" }
  },
  {
    name: "doctor-takes-any-domain",
    breaks: "the queue takes lanes that nobody owns, and nobody was warned",
    file: `${room}/ConstraintChecks.ts`,
    find: "if (one === undefined) return [missing(definition, indexes)]",
    replace:
      'if (one === undefined) return definition.startsWith("ALTER DOMAIN") ? [] : [missing(definition, indexes)]',
    seenBy: { file: findings, test: "constraints: a domain has no rule any more" }
  },
  {
    name: "fix-leaves-the-default",
    breaks: "a column's type can't be put back: Postgres does not know how to cast its default",
    file: `${room}/TableChecks.ts`,
    find: "(isRetyped || to.value === undefined)",
    replace: "(to.value === undefined)",
    seenBy: { file: fixes, test: "the statements that mend tables, constraints and functions" }
  },
  {
    name: "fix-begins-at-one",
    breaks:
      "a queue that was mended gives numbers below those that the dispatchers have passed, and its events are never seen",
    file: `${room}/TableChecks.ts`,
    find: " (START WITH ${nowMillis})",
    replace: "",
    seenBy: { file: fixes, test: "the statements that mend tables, constraints and functions" }
  },
  {
    name: "fix-is-the-superusers",
    breaks: "a view that was mended is the superuser's, and the service may not read it",
    file: `${room}/TableChecks.ts`,
    find: "[`SET ROLE ${owner}`, ...statements]",
    replace: "statements",
    seenBy: { file: fixes, test: "what a superuser makes by a fix" }
  },
  {
    name: "fix-takes-back-what-is-newer",
    breaks: "the doctor of an older release tells people to undo a newer one's migration",
    file: `${room}/Expected.ts`,
    find: "if (yield* isNewer(set))",
    replace: 'if (!(yield* isNewer(set)) && file === "")',
    seenBy: { file: fixes, test: "on the schema of a newer release" }
  },
  {
    name: "fix-is-eaten-by-the-shell",
    breaks: "the shell puts its own number and variables into a statement that is pasted",
    file: `${room}/Check.ts`,
    find: '/["\\\\$`]/g',
    replace: '/"/g',
    seenBy: { file: fixes, test: "a shell hands a statement to psql" }
  },
  {
    name: "doctor-takes-silence",
    breaks: "a process that was named with --url is gone, and the doctor finds nothing",
    file: `${room}/MetricChecks.ts`,
    find: "      wasNamed\n",
    replace: "      wasNamed && false\n",
    seenBy: { file: surroundings, test: "metrics that a process does not have" }
  },
  {
    name: "doctor-takes-old-books",
    breaks: "the books are not compared any more, and nobody hears of it",
    file: "src/application/doctor/BooksCheck.ts",
    find: "sinceDays <= staleDays",
    replace: "sinceDays <= 99 * staleDays",
    seenBy: { file: findings, test: "books-compared: no night for three days" }
  },
  {
    name: "doctor-takes-any-owner",
    breaks: "a restored database makes no day and no migration, and nobody hears of it",
    file: `${room}/UpkeepChecks.ts`,
    find: "AND NOT has_schema_privilege(",
    replace: "AND NULL = has_schema_privilege(",
    seenBy: { file: findings, test: "daily-partitions: the owner of a restored schema" }
  },
  {
    name: "tables-with-hidden-rows",
    breaks: "row-level security and rules change what statements do, and nobody names them",
    file: "src/operations/doctor/TableHazards.ts",
    find: "...(yield* hindered).map(ofHindered)\n",
    replace: "...[]\n",
    seenBy: { file: findings, test: "tables: row-level security" }
  },
  {
    name: "rights-that-are-gone",
    breaks: "the service's role may not write a table any more, and nobody says so",
    file: "src/operations/doctor/RightChecks.ts",
    find: "ELSE has_table_privilege(oid, privilege) END",
    replace: "ELSE true END",
    seenBy: { file: "test/operations/doctor/Fixes.test.ts", test: "what a superuser makes by a fix is the owner's" }
  },
  {
    name: "no-default-partition",
    breaks: "of a day without a partition nothing can be published, and nobody says so",
    file: "src/operations/doctor/TableChecks.ts",
    find: 'if (rest[0] === "ATTACH") {',
    replace: 'if (rest[0] === "ATTACH") return []\n  if (rest[0] === "ATTACHED") {',
    seenBy: { file: "test/operations/doctor/Fixes.test.ts", test: "the statements that mend tables" }
  },
  {
    name: "makes-a-detached-day",
    breaks: "the fix of a detached day is a round of upkeep, which can't make it while its table is there",
    file: "src/operations/doctor/UpkeepChecks.ts",
    find: "...(attach === null\n",
    replace: "...(attach !== undefined\n",
    seenBy: { file: "test/operations/doctor/Fixes.test.ts", test: "the statements that mend tables" }
  },
  {
    name: "adds-a-renamed-column",
    breaks: "the fix of a column with another name makes an empty one beside it",
    file: "src/operations/doctor/TableChecks.ts",
    find: "command: others.length === 0 ? psql(expected) : null",
    replace: "command: psql(expected)",
    seenBy: { file: findings, test: "tables: a column has another name" }
  },
  {
    name: "days-with-a-hole",
    breaks: "a day to come has no partition, and its last one hides it",
    file: "src/operations/doctor/UpkeepChecks.ts",
    find: "...(missingDays > 0",
    replace: "...(missingDays > 99",
    seenBy: { file: findings, test: "daily-partitions: a day to come is gone" }
  },
  {
    name: "doctor-takes-sleeping-triggers",
    breaks: "foreign keys are switched off, and nobody hears of it",
    file: `${room}/TableHazards.ts`,
    find: "IN ('D', 'R') GROUP",
    replace: "IN ('R') GROUP",
    seenBy: { file: findings, test: "tables: triggers and foreign keys are switched off" }
  },
  {
    name: "doctor-takes-unlogged-tables",
    breaks: "a crash empties the ledger, and nobody was warned",
    file: `${room}/TableHazards.ts`,
    find: "AND (relpersistence = 'u'",
    replace: "AND (relpersistence = 'x'",
    seenBy: { file: findings, test: "tables: a crash would empty the ledger" }
  },
  {
    name: "doctor-takes-sleeping-autovacuum",
    breaks: "the queue's dead rows stay for ever, and nobody was warned",
    file: `${room}/TableHazards.ts`,
    find: "AND NOT option_value::boolean))",
    replace: "AND option_value IS NULL))",
    seenBy: { file: findings, test: "tables: autovacuum is switched off for the queue" }
  },
  {
    name: "doctor-names-no-holder",
    breaks: "lanes stand still behind somebody's lock, and nobody is told whose it is",
    file: `${room}/LockChecks.ts`,
    find: "(waits.pid IS NOT NULL OR kept.pid IS NOT NULL)",
    replace: "waits.pid IS NOT NULL",
    seenBy: { file: findings, test: "locks: a session keeps a table to itself" }
  },
  {
    name: "doctor-names-no-blocker",
    breaks: "a session keeps a row that others wait for, and nobody is told which",
    file: `${room}/LockChecks.ts`,
    find: "(waits.pid IS NOT NULL OR kept.pid IS NOT NULL)",
    replace: "kept.tables IS NOT NULL",
    seenBy: { file: findings, test: "locks: a session whose row another one waits for" }
  },
  {
    name: "doctor-repeats-itself",
    breaks: "one cause is a finding for each of 64 lanes, and buries the others",
    file: `${room}/FlowChecks.ts`,
    find: "`${topic} ${owners.get(lane)}`",
    replace: "`${topic} ${lane}`",
    seenBy: { file: findings, test: "lanes-move: many lanes of one owner are one finding" }
  },
  {
    name: "starts-without-triggers",
    breaks: "a service runs where no foreign key holds, and no payment gets the time of its capture",
    file: "src/postgres/StartChecks.ts",
    find: 'row.replication === "origin"',
    replace: 'row.replication !== ""',
    seenBy: { file: findings, test: "settings: triggers and foreign keys are off" }
  },
  {
    name: "doctor-sets-what-the-database-overrides",
    breaks: "the command that is told changes nothing",
    file: `${room}/SettingChecks.ts`,
    find: 'case "database":',
    replace: 'case "nobody":',
    seenBy: { file: findings, test: "settings: commits are not durable" }
  },
  {
    name: "doctor-wants-copies-of-one-broker",
    breaks: "with one broker the doctor never ends with 0",
    file: "src/operations/TopicFindings.ts",
    find: "replication?.brokers?.length === 1",
    replace: "replication?.brokers?.length === 0",
    seenBy: { file: "test/brokers/kafkajs/TopicChecks.test.ts", test: "the doctor notes one copy" }
  },
  {
    name: "doctor-starts-a-restored-database",
    breaks: "on a database that is behind its topic people start processes, which charge customers again",
    file: `${room}/Check.ts`,
    find: '(first.outcome === "not checked" && !starts(finding))',
    replace: '(first.outcome === "finding" || !starts(finding))',
    seenBy: { file: "test/operations/doctor/Fixes.test.ts", test: "on a database that is behind its topic" }
  },
  {
    name: "doctor-starts-blindly",
    breaks:
      "where it is not known whether the database is behind, people start processes, which charge customers again",
    file: `${room}/Check.ts`,
    find: '=== "not checked" && !starts(finding)',
    replace: '=== "not checked"',
    seenBy: { file: "test/operations/doctor/Fixes.test.ts", test: "while it is not known whether" }
  },
  {
    name: "doctor-without-end",
    breaks: "where many checks hang, the answer comes minutes after the console has given up",
    file: `${room}/Check.ts`,
    find: "Math.min(boundMillis, leftMillis)",
    replace: "boundMillis",
    seenBy: { file: "test/operations/doctor/Standstill.test.ts", test: "however many checks hang" }
  },
  {
    name: "doctor-examines-for-each",
    breaks: "each who asks starts an examination of its own, and the connections of the doctor are not bounded",
    file: `${room}/Doctor.ts`,
    find: "Effect.scoped(Effect.flatMap(RcRef.get(examination), Fiber.join))",
    replace: "examine",
    seenBy: { file: "test/operations/doctor/Standstill.test.ts", test: "whoever asks while an examination runs" }
  },
  {
    name: "doctor-reads-all",
    breaks: "of a large topic the newest records are never reached, and a restored database passes",
    file: "src/application/doctor/BehindTopic.ts",
    find: "start: from > start ? from : start, end",
    replace: "start, end",
    seenBy: { file: "test/application/doctor/BehindTopic.test.ts", test: "on a large topic" }
  },
  {
    name: "doctor-misses-gaps",
    breaks: "on a restored database the service runs on, and the archive's newest offsets pass for all of them",
    file: "src/application/doctor/BehindTopic.ts",
    find: "coalesce(min(before + 1) FILTER (WHERE record_offset > before + 1), max(record_offset) + 1)",
    replace: "max(record_offset) + 1",
    seenBy: { file: "test/application/doctor/BehindTopic.test.ts", test: "on a large topic" }
  },
  {
    name: "doctor-is-well-blindly",
    breaks: "a check that could not look passes for good news",
    file: `${room}/Check.ts`,
    find: '{ group, name, outcome: "not checked", told: outcome.why, findings: [] }',
    replace: '{ group, name, outcome: "ok", told: outcome.why, findings: [] }',
    seenBy: { file: surroundings, test: "its sessions can't write" }
  },
  {
    name: "doctor-writes",
    breaks: "an examination changes the system that it looks at",
    file: "src/main/Doctor.ts",
    find: 'default_transaction_read_only: "on",\n',
    replace: "",
    seenBy: { file: surroundings, test: "its sessions can't write" }
  },
  {
    name: "doctor-waits-for-locks",
    breaks: "an examination queues for a lock, and every writer queues behind it",
    file: "src/main/Doctor.ts",
    find: 'lock_timeout: "200"',
    replace: 'lock_timeout: "0"',
    seenBy: { file: surroundings, test: "its sessions can't write" }
  },
  {
    name: "doctor-takes-any-index",
    breaks: "an index that is not partial any more counts as the migrations'",
    file: `${room}/IndexChecks.ts`,
    find: "if (there.definition === definition) return undefined",
    replace: "if (there.definition !== undefined) return undefined",
    seenBy: { file: findings, test: "indexes: an index is not partial any more" }
  },
  {
    name: "doctor-sorts",
    breaks: "a claim that sorts all that wait passes",
    file: `${room}/PlanChecks.ts`,
    find: 'node["Node Type"].endsWith("Sort") &&',
    replace: 'node["Node Type"] === "no sort" &&',
    seenBy: { file: findings, test: "claim-plan: the index does not have the order" }
  },
  {
    name: "doctor-without-second-look",
    breaks: "a lane whose owner hangs passes as one that moves",
    file: `${room}/FlowChecks.ts`,
    find: "now.get(`${lane} ${topic}`) === seq",
    replace: "now.get(`${lane} ${topic}`) !== seq",
    seenBy: { file: findings, test: "lanes-move: the owner of a lane does not move it" }
  },
  {
    name: "doctor-ends-who-waits",
    breaks: "after an outage a person is told to end a process that is about to go on",
    file: `${room}/FlowChecks.ts`,
    find: "Backoff.restartCapMillis + 2 * againMillis",
    replace: "againMillis",
    seenBy: { file: "test/operations/doctor/Standstill.test.ts", test: "a reader that waits after an outage" }
  },
  {
    name: "doctor-sees-its-own-sessions-only",
    breaks: "a role that sees no other session finds no old snapshot",
    file: `${room}/VacuumChecks.ts`,
    find: "if (findings.length === 0 && hidden > 0)",
    replace: "if (findings.length === 0 && hidden < 0)",
    seenBy: { file: surroundings, test: "what its role may not see" }
  },
  {
    name: "doctor-hears-everything",
    breaks: "lost wake-ups pass",
    file: `${room}/DatabaseChecks.ts`,
    find: "orElse: () => Effect.succeed(false)",
    replace: "orElse: () => Effect.succeed(true)",
    seenBy: { file: surroundings, test: "a pooler in transaction mode" }
  },
  {
    name: "restore-without-gateway",
    breaks: "a database that was restored together with its topic passes, and its customers are charged again",
    file: "src/application/doctor/BehindGateway.ts",
    find: "unsettled.filter(({ key }) => !here.has(key))",
    replace: "unsettled.filter(({ key }) => here.has(key))",
    seenBy: { file: restore, test: "with the embedded broker the gateway's ledger" }
  },
  {
    name: "restore-without-archive",
    breaks: "without an archive no record is compared, and customers of a restored database are charged again",
    file: "src/application/doctor/BehindTopic.ts",
    find: "const last = end - endLimit",
    replace: "const last = end",
    seenBy: { file: "test/application/doctor/BehindTopic.test.ts", test: "on a large topic" }
  },
  {
    name: "doctor-trusts-the-planner",
    breaks: "a database where no index may be used is told to be analyzed, which changes nothing",
    file: `${room}/SettingChecks.ts`,
    find: "AND setting = 'off' AND source",
    replace: "AND setting = 'none' AND source",
    seenBy: { file: findings, test: "settings: the planner may not use an index" }
  },
  {
    name: "restore-over-another-history",
    breaks: "an order whose version was used anew gets the state of another event",
    file: "src/application/rollforward/Unknown.ts",
    find: "WHEN has_other THEN 'collision'",
    replace: "WHEN has_other THEN 'known'",
    seenBy: { file: restore, test: "where the service ran on such a database" }
  },
  {
    name: "restore-leaves-payments-under-way",
    breaks: "a payment whose outcome is in the topic is asked for and announced a second time",
    file: "src/application/rollforward/LostEvents.ts",
    find: "SET status = excluded.status, captured_minor",
    replace: "SET status = p.status, captured_minor",
    seenBy: { file: restore, test: "a database behind its topic" }
  },
  {
    name: "doctor-blames-indexes-of-a-renamed-table",
    breaks: "of a renamed table the fixes of its indexes are told first, and drop those that are right",
    file: `${room}/MissingTables.ts`,
    find: "filter(([table]) => !there.has(table))",
    replace: 'filter(([table]) => table === "")',
    seenBy: { file: findings, test: "missing-tables: a table has another name" }
  },
  {
    name: "doctor-trusts-sequences",
    breaks: "after a switch-over no decision of an operator can be written, and nothing tells why",
    file: `${room}/Sequences.ts`,
    find: "most <= last",
    replace: "most >= last",
    seenBy: { file: findings, test: "tables: a sequence is behind its column" }
  },
  {
    name: "doctor-overlooks-timeouts",
    breaks: "a database whose statements end after milliseconds is said to be well",
    file: `${room}/SettingChecks.ts`,
    find: "seconds > 0 AND seconds <",
    replace: "seconds < 0 AND seconds <",
    seenBy: { file: findings, test: "settings: a short statement_timeout is set for a database" }
  },
  {
    name: "doctor-overlooks-retention-by-size",
    breaks: "Kafka drops events that nobody has read, and nothing warns",
    file: "src/operations/TopicFindings.ts",
    find: "  retentionBySize,\n",
    replace: "",
    seenBy: { file: "test/operations/TopicChecks.test.ts", test: "a topic that drops events by size weakens it" }
  }
]
