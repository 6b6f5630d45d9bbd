-- The time in a UUIDv7.
CREATE FUNCTION uuid_v7_time(id uuid) RETURNS timestamptz
  LANGUAGE sql IMMUTABLE PARALLEL SAFE STRICT
  AS $$ SELECT to_timestamp(('x' || left(replace(id::text, '-', ''), 12))::bit(48)::bigint / 1000.0) $$;

-- The smallest UUID version 7 of a moment, for ranges of time over ids.
CREATE FUNCTION uuid_v7_floor_at(moment timestamptz) RETURNS uuid
  LANGUAGE sql IMMUTABLE PARALLEL SAFE STRICT
  AS $$ SELECT (lpad(to_hex(floor(extract(epoch FROM moment) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid $$;

-- The partitions of a table that is partitioned by a UUIDv7 key, with the times that their bounds stand for. The default partition
-- has neither.
CREATE FUNCTION time_partitions(parent text)
  RETURNS TABLE (child regclass, is_default boolean, from_time timestamptz, to_time timestamptz)
  LANGUAGE sql STABLE
  AS $$
    SELECT inhrelid::regclass, bound = 'DEFAULT',
           uuid_v7_time(substring(bound FROM 'FROM \(''([0-9a-f-]{36})''')::uuid),
           uuid_v7_time(substring(bound FROM 'TO \(''([0-9a-f-]{36})''')::uuid)
    FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid,
         LATERAL pg_get_expr(relpartbound, pg_class.oid) AS bound
    WHERE inhparent = to_regclass(quote_ident(parent)) AND NOT inhdetachpending
    ORDER BY 3 NULLS FIRST
  $$;

-- Makes the partition of one day: 'made', 'present', or 'blocked' where the default partition holds more than `max_moved` rows of that
-- day. Up to so many rows move over with it; more would keep their writers waiting, so they stay where they are.
--
-- A table made beside its parent and then attached lets writers of the other partitions go on; CREATE TABLE … PARTITION OF would stop
-- them all. The parent's key column is called event_id.
CREATE FUNCTION make_daily_partition(parent text, day date, max_moved integer, OUT outcome text, OUT moved bigint)
  LANGUAGE plpgsql
  -- Better to try again later than to queue up in front of readers and writers.
  SET lock_timeout = '100ms'
  AS $$
    DECLARE
      child text := parent || '_' || to_char(day, 'YYYYMMDD');
      lower_bound uuid := uuid_v7_floor(day);
      upper_bound uuid := uuid_v7_floor(day + 1);
      fallback regclass;
    BEGIN
      moved := 0;
      PERFORM pg_advisory_xact_lock(hashtext('daily partitions'), hashtext(parent));
      -- By their bounds, not by name: an operator may have merged days.
      IF EXISTS (
        SELECT FROM time_partitions(parent)
        WHERE from_time < uuid_v7_time(upper_bound) AND to_time > uuid_v7_time(lower_bound)
      ) THEN
        outcome := 'present';
        RETURN;
      END IF;
      SELECT p.child INTO fallback FROM time_partitions(parent) AS p WHERE p.is_default;
      IF fallback IS NOT NULL THEN
        EXECUTE format('SELECT count(*) FROM (SELECT FROM %s WHERE event_id >= %L AND event_id < %L LIMIT %s) AS there',
          fallback, lower_bound, upper_bound, max_moved + 1) INTO moved;
        IF moved > max_moved THEN
          outcome := 'blocked';
          moved := 0;
          RETURN;
        END IF;
      END IF;
      EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING ALL)', child, parent);
      IF moved > 0 THEN
        -- What attaching needs anyway, taken before the rows move: none may come after them.
        EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', fallback);
        EXECUTE format('WITH taken AS (DELETE FROM %s WHERE event_id >= %L AND event_id < %L RETURNING *) INSERT INTO %I SELECT * FROM taken',
          fallback, lower_bound, upper_bound, child);
        GET DIAGNOSTICS moved = ROW_COUNT;
      END IF;
      EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', parent, child, lower_bound, upper_bound);
      outcome := 'made';
    END
  $$;
