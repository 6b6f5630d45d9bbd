-- Daily partitions, so that a day is dropped whole instead of being deleted row by row. A table of this kind is partitioned by
-- event_id, a UUID of version 7, and has a default partition: rows are taken even where nobody has made the day's partition.

-- The partitions of a table with the times of their bounds. The default partition has no bounds.
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

-- Makes the partition of one UTC day. Any number of processes may call it at any time. The outcome is
--   `made`      The partition is new; `moved` rows of its day were moved from the default partition.
--   `present`   A partition already covers a part of the day.
--   `blocked`   The default partition has more than max_moved rows of the day. Moving them would keep writers waiting.
--
-- The table is made by itself and then attached, so writers of the other partitions go on. CREATE TABLE … PARTITION OF would lock
-- the parent against all of them.
CREATE FUNCTION make_daily_partition(parent text, day date, max_moved integer, OUT outcome text, OUT moved bigint)
  LANGUAGE plpgsql
  -- A lock that is not free at once is tried again later: waiting for it would stop the readers and writers that come after.
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
      -- By bounds and not by name: an operator may have merged days.
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
        -- ATTACH PARTITION takes this lock in any case. Taken before the rows move, it lets no further row of the day in.
        EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', fallback);
        EXECUTE format('WITH taken AS (DELETE FROM %s WHERE event_id >= %L AND event_id < %L RETURNING *) INSERT INTO %I SELECT * FROM taken',
          fallback, lower_bound, upper_bound, child);
        GET DIAGNOSTICS moved = ROW_COUNT;
      END IF;
      EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', parent, child, lower_bound, upper_bound);
      outcome := 'made';
    END
  $$;
