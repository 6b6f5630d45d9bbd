-- The one database clock. Every statement of ours takes its time from clock_now(): never from now(), which is the
-- transaction's start, and never from a host's clock. A test puts a settable clock in its place in its own database.
CREATE FUNCTION clock_now() RETURNS timestamptz
  LANGUAGE sql VOLATILE PARALLEL SAFE
  AS 'SELECT clock_timestamp()';

-- A UUID version 7 (RFC 9562, section 5.7): 48 bits of Unix milliseconds from the database's clock, the rest from `random`,
-- a version 4 UUID that the caller drew. So ids follow the one clock, and a test that holds the randomness holds the ids.
CREATE FUNCTION uuid_v7(at timestamptz, random uuid) RETURNS uuid
  LANGUAGE sql IMMUTABLE PARALLEL SAFE
  AS $$
    SELECT encode(
      set_byte(
        overlay(uuid_send(random) PLACING substring(int8send(floor(extract(epoch FROM at) * 1000)::bigint) FROM 3) FROM 1 FOR 6),
        6, (get_byte(uuid_send(random), 6) & 15) | 112),
      'hex')::uuid
  $$;

-- The smallest UUID version 7 of a day: the bound of that day's partition.
CREATE FUNCTION uuid_v7_floor(day date) RETURNS uuid
  LANGUAGE sql IMMUTABLE PARALLEL SAFE
  AS $$ SELECT (lpad(to_hex((extract(epoch FROM day) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid $$;

-- Makes the daily partitions of a table that is partitioned by a UUIDv7, from yesterday to `days_ahead` days from now.
-- Safe to run at any time and from several processes at once; a day that is there already is left alone.
CREATE FUNCTION ensure_daily_partitions(parent text, days_ahead integer) RETURNS integer
  LANGUAGE plpgsql
  -- Making a partition locks the parent for a moment: better to try again later than to queue up in front of its writers.
  SET lock_timeout = '1s'
  AS $$
    DECLARE
      day date;
      made integer := 0;
      today date := (clock_now() AT TIME ZONE 'UTC')::date;
      child text;
    BEGIN
      PERFORM pg_advisory_xact_lock(hashtext('ensure_daily_partitions'), hashtext(parent));
      FOR day IN SELECT today + offset_days FROM generate_series(-1, days_ahead) AS offset_days LOOP
        child := parent || '_' || to_char(day, 'YYYYMMDD');
        CONTINUE WHEN to_regclass(quote_ident(child)) IS NOT NULL;
        BEGIN
          EXECUTE format('CREATE TABLE %I PARTITION OF %I FOR VALUES FROM (%L) TO (%L)',
            child, parent, uuid_v7_floor(day), uuid_v7_floor(day + 1));
          made := made + 1;
        EXCEPTION WHEN check_violation THEN
          NULL; -- The default partition already holds rows of that day: they stay there, and so do its later ones.
        END;
      END LOOP;
      RETURN made;
    END
  $$;
