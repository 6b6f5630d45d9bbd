-- Event, order, payment and task ids are UUIDs of version 7 (RFC 9562, section 5.7): the first 48 bits are Unix milliseconds.
-- Tables that are partitioned by such an id are partitioned by time.

-- Processes draw ids themselves (src/platform/Ids.ts): as a function here it cost more than an event's INSERT.

-- The time in an id.
CREATE FUNCTION uuid_v7_time(id uuid) RETURNS timestamptz
  LANGUAGE sql IMMUTABLE PARALLEL SAFE STRICT
  AS $$ SELECT to_timestamp(('x' || left(replace(id::text, '-', ''), 12))::bit(48)::bigint / 1000.0) $$;

-- The smallest id of a UTC day: the bound of that day's partition.
CREATE FUNCTION uuid_v7_floor(day date) RETURNS uuid
  LANGUAGE sql IMMUTABLE PARALLEL SAFE
  AS $$ SELECT (lpad(to_hex((extract(epoch FROM day) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid $$;

-- The smallest id of a moment, for searches by time. Not an overload of uuid_v7_floor: a date would be cast to timestamptz in the
-- session's time zone.
CREATE FUNCTION uuid_v7_floor_at(moment timestamptz) RETURNS uuid
  LANGUAGE sql IMMUTABLE PARALLEL SAFE STRICT
  AS $$ SELECT (lpad(to_hex(floor(extract(epoch FROM moment) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid $$;
