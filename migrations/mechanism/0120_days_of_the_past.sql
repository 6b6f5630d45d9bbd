-- The archive can be filled from the topic (src/operations/refill), with events of any day that the topic still has. So days of the past can be made, too.

-- Makes the partition of one UTC day. Any number of processes may call it at any time. The outcome is
--   `made`      The partition is new; `moved` rows of its day were moved from the default partition.
--   `present`   A partition already covers a part of the day.
--   `blocked`   The default partition has more than max_moved rows of the day. Moving them would keep writers waiting.
--
-- The table is made by itself and then attached, so writers of the other partitions go on. CREATE TABLE … PARTITION OF would lock
-- the parent against all of them.
CREATE OR REPLACE FUNCTION make_daily_partition(parent text, day date, max_moved integer, OUT outcome text, OUT moved bigint)
  LANGUAGE plpgsql SECURITY DEFINER
  -- A lock that is not free at once is tried again later: waiting for it would stop the readers and writers that come after.
  SET lock_timeout = '100ms'
  AS $$
    DECLARE
      child text := parent || '_' || to_char(day, 'YYYYMMDD');
      lower_bound uuid := uuid_v7_floor(day);
      upper_bound uuid := uuid_v7_floor(day + 1);
      fallback regclass;
    BEGIN
      PERFORM check_daily_table(parent);
      -- Upkeep asks for a few days ahead, a refill of the archive for the past ten years at most. A caller that asks for any number of days would
      -- fill the catalog.
      IF coalesce(day - (clock_now() AT TIME ZONE 'UTC')::date NOT BETWEEN -3660 AND 31, true) THEN
        RAISE EXCEPTION 'the day % is neither in the past ten years nor in the next month', day USING ERRCODE = 'invalid_parameter_value';
      END IF;
      IF coalesce(max_moved NOT BETWEEN 0 AND 10000, true) THEN
        RAISE EXCEPTION 'max_moved is from 0 to 10000, and not %', max_moved USING ERRCODE = 'invalid_parameter_value';
      END IF;
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

-- A function that is replaced loses its search_path: the names are those of this schema, whatever the caller's says (0111). Its grants stay.
DO $$
  BEGIN
    EXECUTE format('ALTER FUNCTION make_daily_partition(text, date, integer) SET search_path = %I, pg_temp', current_schema());
  END
$$;
