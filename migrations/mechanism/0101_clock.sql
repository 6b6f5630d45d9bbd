-- The one clock. Every statement of the service takes its time from clock_now(): not from now(), which stands still at the
-- transaction's start, and not from a host's clock. A test replaces this function in its own database.
CREATE FUNCTION clock_now() RETURNS timestamptz
  LANGUAGE sql VOLATILE PARALLEL SAFE
  AS 'SELECT clock_timestamp()';
