-- Who has signed in to the console (src/http/access/Sessions.ts). A row is worth nothing to its reader or writer: the digest is HMAC-SHA256 of the id
-- in the browser's cookie, under the credential that the session was begun with. At most a hundred rows are kept.
CREATE TABLE operator_sessions (
  digest   text        PRIMARY KEY CHECK (digest ~ '^[0-9a-f]{64}$'),
  -- The credential's name at the sign-in, for a person who reads the table. The service takes none from here.
  name     text        NOT NULL,
  began_at timestamptz NOT NULL,
  -- Exact to a minute.
  used_at  timestamptz NOT NULL
);
