-- Event, order, payment and task ids are UUIDs of version 7 (RFC 9562, section 5.7): the first 48 bits are Unix milliseconds.
-- Tables that are partitioned by such an id are partitioned by time.

-- Makes an id of a time and of a random UUID, version 4, that the caller drew.
-- STABLE, although the result depends on the arguments alone: extract(epoch FROM timestamptz) is STABLE, and Postgres inlines a
-- function only where its body is no more volatile than it declares. A call that is not inlined starts an executor of its own,
-- which took more than half of the time of an event's INSERT.
CREATE FUNCTION uuid_v7(at timestamptz, random uuid) RETURNS uuid
  LANGUAGE sql STABLE PARALLEL SAFE
  AS $$
    SELECT encode(
      set_byte(
        overlay(uuid_send(random) PLACING substring(int8send(floor(extract(epoch FROM at) * 1000)::bigint) FROM 3) FROM 1 FOR 6),
        6, (get_byte(uuid_send(random), 6) & 15) | 112),
      'hex')::uuid
  $$;

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
