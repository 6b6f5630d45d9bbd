-- Making and dropping a day is DDL, and the service's role may have no DDL (docs/hardening.md, roles). So both are functions with the
-- rights of the schema's owner, for these two tables and for days only. A service that has one role owns them, and calls them alike.
--
-- The owner's grants decide who may call them (src/postgres/Roles.ts).

-- Refuses a table that has no daily partitions: nothing else may reach the owner's rights through its name.
CREATE FUNCTION check_daily_table(parent text) RETURNS void
  LANGUAGE plpgsql IMMUTABLE
  AS $$
    BEGIN
      IF coalesce(parent, '') NOT IN ('event_log', 'processed_events') THEN
        RAISE EXCEPTION '% has no daily partitions', coalesce(parent, 'NULL') USING ERRCODE = 'invalid_parameter_value';
      END IF;
    END
  $$;

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
      -- Upkeep asks for a few days ahead. A caller that asks for any number of days would fill the catalog.
      IF coalesce(abs(day - (clock_now() AT TIME ZONE 'UTC')::date) > 31, true) THEN
        RAISE EXCEPTION 'the day % is not within a month of today', day USING ERRCODE = 'invalid_parameter_value';
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

-- Drops the partition of a day that is over, in the caller's transaction. The caller has looked that no row in it is young: it may
-- delete them anyway.
CREATE FUNCTION drop_daily_partition(parent text, partition text) RETURNS void
  LANGUAGE plpgsql SECURITY DEFINER
  SET lock_timeout = '100ms'
  AS $$
    DECLARE
      day regclass;
    BEGIN
      PERFORM check_daily_table(parent);
      SELECT p.child INTO day FROM time_partitions(parent) AS p
      WHERE p.child = to_regclass(partition) AND NOT p.is_default AND p.to_time <= clock_now();
      IF day IS NULL THEN
        RAISE EXCEPTION '% is not a past day of %', partition, parent USING ERRCODE = 'invalid_parameter_value';
      END IF;
      EXECUTE format('DROP TABLE %s', day);
    END
  $$;

-- The names in these functions are those of this schema, whatever the caller's search_path says: not those of a temporary table.
DO $$
  DECLARE
    privileged text;
  BEGIN
    FOREACH privileged IN ARRAY ARRAY['make_daily_partition(text, date, integer)', 'drop_daily_partition(text, text)'] LOOP
      EXECUTE format('ALTER FUNCTION %s SET search_path = %I, pg_temp', privileged, current_schema());
      EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', privileged);
    END LOOP;
  END
$$;
