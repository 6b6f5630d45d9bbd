-- Processes draw their ids themselves (src/platform/Ids.ts): the function cost more than an event's INSERT.
DROP FUNCTION uuid_v7(timestamptz, uuid);
