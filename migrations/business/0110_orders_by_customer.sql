-- The orders of a customer, for the search of his events. On a large table: CREATE INDEX CONCURRENTLY by hand, before the upgrade.
CREATE INDEX IF NOT EXISTS orders_by_customer ON orders (customer_id, id);
