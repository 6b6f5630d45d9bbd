/** For each alert of docs/alerts/rules.yml figures that make it fire, and end. Each case is healthy at first, then ill, then healthy again. */

/** The minutes of the phases. The last one is longer than the longest look back of a rule, an hour. */
export const phases = { healthy: 20, ill: 30, healthyAgain: 80 }
const illAt = (minute: number) => minute >= phases.healthy && minute < phases.healthy + phases.ill
const minutes = Array.from({ length: phases.healthy + phases.ill + phases.healthyAgain }, (_, minute) => minute)

/** A figure in good days and bad days. */
const gauge = (ok: number, ill: number) => minutes.map((minute) => (illAt(minute) ? ill : ok))
/** What is counted in each minute, of good days and bad days. */
const counter = (ok: number, ill: number) => {
  let count = 0
  return minutes.map((minute) => (count += illAt(minute) ? ill : ok))
}

interface AlertCase {
  readonly alert: string
  readonly series: Readonly<Record<string, ReadonlyArray<number>>>
}

const one = `job="paid-once",instance="a"`
const mail = `${one},task_type="email"`
const billing = `${one},consumer="billing"`
const twoWeeks = 14 * 86_400

/** A figure at its limit, and just above it. */
const above = (alert: string, metric: string, limit: number, labels = one): AlertCase => ({
  alert,
  series: { [`${metric}{${labels}}`]: gauge(limit, limit + 1) }
})

export const alertCases: ReadonlyArray<AlertCase> = [
  above("OutboxOldestEventTooOld", "outbox_oldest_pending_age_seconds", 300),
  above("OutboxEventsBacklog", "outbox_events_pending", 1_000),
  { alert: "OutboxBacklogGrowing", series: { [`outbox_events_pending{${one}}`]: counter(0, 20) } },
  above("OutboxDeadLetters", "outbox_dead_letters", 0),
  {
    alert: "OutboxBatchSlow",
    series: {
      [`outbox_batch_duration_seconds_bucket{${one},le="5"}`]: counter(100, 94),
      [`outbox_batch_duration_seconds_bucket{${one},le="10"}`]: counter(100, 100),
      [`outbox_batch_duration_seconds_bucket{${one},le="+Inf"}`]: counter(100, 100)
    }
  },
  { alert: "OutboxLaneFailures", series: { [`outbox_lane_failures_total{${one}}`]: counter(0, 1) } },
  {
    alert: "BrokerUnavailable",
    series: {
      [`broker_available{${one}}`]: gauge(1, 0),
      // Loops that fail without a broker are no alert of their own.
      [`fiber_restarts_total{${one},fiber="consumer billing"}`]: counter(0, 4)
    }
  },
  {
    alert: "OutboxQueueBacklog",
    series: {
      [`outbox_tasks_pending{${mail},state="pending"}`]: gauge(25, 25),
      // Each process samples the same table: they don't add up.
      [`outbox_tasks_pending{job="paid-once",instance="b",task_type="email",state="pending"}`]: gauge(25, 25),
      [`outbox_tasks_pending{${mail},state="failed"}`]: gauge(25, 26),
      [`outbox_task_processed_total{${mail},outcome="completed"}`]: counter(10, 10)
    }
  },
  {
    alert: "OutboxHighErrorRate",
    series: {
      [`outbox_task_processed_total{${mail},outcome="completed"}`]: counter(100, 100),
      [`outbox_task_processed_total{${mail},outcome="failed"}`]: counter(4, 6)
    }
  },
  {
    alert: "OutboxSlowProcessing",
    series: {
      [`outbox_task_duration_seconds_bucket{${mail},le="30"}`]: counter(100, 98),
      [`outbox_task_duration_seconds_bucket{${mail},le="60"}`]: counter(100, 100),
      [`outbox_task_duration_seconds_bucket{${mail},le="+Inf"}`]: counter(100, 100)
    }
  },
  {
    alert: "OutboxStuckTasks",
    series: {
      [`outbox_tasks_pending{${mail},state="failed"}`]: gauge(0, 1),
      [`outbox_task_processed_total{${mail},outcome="completed"}`]: counter(1, 0),
      // Other types go on.
      [`outbox_task_processed_total{${one},task_type="report",outcome="completed"}`]: counter(1, 1)
    }
  },
  above("OutboxTasksDead", "outbox_tasks_dead", 0, mail),
  above("InboxLag", "inbox_lag", 1_000, billing),
  above("InboxEventTooOld", "inbox_lag_seconds", 300, billing),
  above("InboxDeadLetters", "inbox_dead_letters", 0, billing),
  above("InboxGaps", "inbox_gaps", 0, billing),
  { alert: "InboxSliceFailures", series: { [`inbox_slice_failures_total{${billing}}`]: counter(0, 1) } },
  above("PaymentsManual", "payments_manual", 0),
  { alert: "PaymentsContradicted", series: { [`payments_contradicted_total{${one}}`]: counter(0, 1) } },
  above("ReconciliationDifference", "reconciliation_differences", 0),
  { alert: "PaidOnceDown", series: { [`up{${one}}`]: gauge(1, 0) } },
  {
    alert: "DatabaseUnreachable",
    series: {
      [`listen_connected{${one}}`]: gauge(1, 0),
      // Loops that fail without a database are no alert of their own.
      [`fiber_restarts_total{${one},fiber="outbox sizes"}`]: counter(0, 4)
    }
  },
  {
    alert: "HttpServerErrors",
    series: {
      [`http_requests_total{${one},method="GET",route="/orders/:id",status="200"}`]: counter(95, 95),
      [`http_requests_total{${one},method="GET",route="/orders/:id",status="500"}`]: counter(5, 6)
    }
  },
  {
    alert: "FiberRestarts",
    series: {
      [`listen_connected{${one}}`]: gauge(1, 1),
      [`fiber_restarts_total{${one},fiber="maintenance"}`]: counter(0, 2)
    }
  },
  {
    alert: "DiskAlmostFull",
    series: {
      [`data_directory_free_bytes{${one}}`]: gauge(100, 99),
      [`data_directory_size_bytes{${one}}`]: gauge(1_000, 1_000)
    }
  },
  above("WalRetained", "database_wal_retained_bytes", 5 * 2 ** 30),
  {
    alert: "CertificateEndsSoon",
    // Renewed in the last phase.
    series: {
      [`tls_certificate_expiry_timestamp_seconds{${one},use="kafka_client"}`]: minutes.map((minute) =>
        minute < phases.healthy + phases.ill ? twoWeeks + phases.healthy * 60 : 3 * twoWeeks
      )
    }
  }
]

/** What passes by itself, and wakes nobody. */
export const quietCases: Readonly<Record<string, AlertCase["series"]>> = {
  "one mail that fails once": {
    [`outbox_tasks_pending{${mail},state="failed"}`]: minutes.map((minute) => (minute === 25 ? 1 : 0)),
    [`outbox_task_processed_total{${mail},outcome="failed"}`]: minutes.map((minute) => (minute >= 25 ? 1 : 0)),
    [`outbox_task_processed_total{${mail},outcome="completed"}`]: minutes.map((minute) => (minute >= 26 ? 1 : 0))
  },
  "a restart of each loop, and one slice that comes again": {
    [`fiber_restarts_total{${one},fiber="maintenance"}`]: minutes.map((minute) => (minute >= 25 ? 1 : 0)),
    [`inbox_slice_failures_total{${billing}}`]: minutes.map((minute) => (minute >= 25 ? 1 : 0)),
    [`outbox_lane_failures_total{${one}}`]: minutes.map((minute) => (minute >= 25 ? 1 : 0))
  },
  "an hour without a request": {
    [`http_requests_total{${one},method="GET",route="/orders/:id",status="200"}`]: gauge(7, 7),
    [`outbox_task_processed_total{${mail},outcome="completed"}`]: gauge(7, 7),
    [`outbox_tasks_pending{${mail},state="failed"}`]: gauge(0, 0)
  }
}
