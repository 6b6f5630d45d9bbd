-- The commanded behaviour of the sandbox gateway: one row, or none.
CREATE TABLE sandbox_gateway.behaviour (
  the_one boolean PRIMARY KEY DEFAULT true CHECK (the_one),
  state   jsonb   NOT NULL
);

-- How often a key was tried, for payment methods that fail a few times before they succeed.
CREATE TABLE sandbox_gateway.tries (
  key   text    PRIMARY KEY,
  count integer NOT NULL
);
