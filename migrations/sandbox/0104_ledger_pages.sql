-- The ledger in pages, in the order of the keys' bytes, whatever the database's collation.
CREATE INDEX IF NOT EXISTS charges_by_key ON sandbox_gateway.charges (idempotency_key COLLATE "C");
