/** The groups of the operators' API, under /admin. `../Api.ts` adds them to the service's, and `AdminHandlers.ts` has their handlers. */
import { AuditApi } from "./AuditApi.ts"
import { DoctorApi } from "./DoctorApi.ts"
import { ConsumersApi, EventsApi } from "./EventsApi.ts"
import { FaultsApi } from "./FaultsApi.ts"
import { InboxApi } from "./InboxApi.ts"
import { JourneyApi } from "./JourneyApi.ts"
import { AdminGatewayApi, SettingsApi } from "./InstallationApi.ts"
import { AdminMailApi, AdminOrdersApi, AdminPaymentsApi } from "./MoneyApi.ts"
import { DeadLettersApi, OutboxApi } from "./OutboxApi.ts"
import { LiveApi } from "./OverviewApi.ts"
import { PausesApi } from "./PausesApi.ts"
import { ReconciliationApi } from "./ReconciliationApi.ts"
import { SessionApi } from "./SessionApi.ts"
import { SumsApi } from "./SumsApi.ts"
import { AdminTasksApi } from "./TasksApi.ts"

export const adminGroups = [
  SessionApi,
  OutboxApi,
  DeadLettersApi,
  InboxApi,
  AdminTasksApi,
  AdminOrdersApi,
  AdminPaymentsApi,
  AdminMailApi,
  PausesApi,
  LiveApi,
  JourneyApi,
  EventsApi,
  ConsumersApi,
  FaultsApi,
  AuditApi,
  SettingsApi,
  AdminGatewayApi,
  SumsApi,
  ReconciliationApi,
  DoctorApi
] as const
