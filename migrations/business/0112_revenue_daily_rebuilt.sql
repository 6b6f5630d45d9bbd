-- Analytics: where a rebuild makes its revenue anew (src/operations/rebuild). Nobody reads it; empty while no rebuild runs.
CREATE TABLE revenue_daily_rebuilt (LIKE revenue_daily INCLUDING ALL);
