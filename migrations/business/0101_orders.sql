-- An order. It changes only together with its events: Orders.save is one statement. Each status here is announced by an event. The
-- statuses `paying` and `refunding`, which readers see while a payment is under way, are not stored.
CREATE TABLE orders (
  id                 uuid        PRIMARY KEY,
  customer_id        text        NOT NULL CHECK (customer_id <> ''),
  currency           text        NOT NULL CHECK (currency ~ '^[A-Z]{3}$'),
  status             text        NOT NULL CHECK (status IN ('pending', 'paid', 'cancelled', 'refunded')),
  version            integer     NOT NULL CHECK (version > 0),
  total_amount_minor bigint      NOT NULL CHECK (total_amount_minor BETWEEN 1 AND 9007199254740991),
  created_at         timestamptz NOT NULL,
  updated_at         timestamptz NOT NULL
);
CREATE INDEX orders_by_status ON orders (status, id);

-- The lines of an order. They are written with the order, and never changed.
CREATE TABLE order_lines (
  order_id          uuid    NOT NULL REFERENCES orders,
  position          integer NOT NULL CHECK (position BETWEEN 0 AND 999),
  sku               text    NOT NULL CHECK (sku <> ''),
  quantity          integer NOT NULL CHECK (quantity BETWEEN 1 AND 1000000),
  unit_amount_minor bigint  NOT NULL CHECK (unit_amount_minor BETWEEN 1 AND 100000000000),
  PRIMARY KEY (order_id, position)
);
