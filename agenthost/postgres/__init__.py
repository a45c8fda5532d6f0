"""Django's Postgres backend, with a connection pool that checks idle connections without a round trip."""
