-- Whether this database takes a write at the moment (src/http/WriteProbe.ts). A probe inserts a row of some pages and rolls it back, so the
-- table is always empty. Uncompressed and out of line, the row asks the disk for space as an order does.
CREATE TABLE write_probe (filler text NOT NULL);
ALTER TABLE write_probe ALTER COLUMN filler SET STORAGE EXTERNAL;
