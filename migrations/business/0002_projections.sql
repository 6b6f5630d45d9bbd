-- Analytics: revenue by the UTC date of what happened. numeric, for the sum of many totals may pass a bigint.
CREATE TABLE revenue_daily (
  day          date          NOT NULL,
  currency     text          NOT NULL CHECK (currency ~ '^[A-Z]{3}$'),
  amount_minor numeric(38,0) NOT NULL,
  PRIMARY KEY (day, currency)
);
