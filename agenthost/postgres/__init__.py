"""Django's Postgres backend with a pool that asks no question of a connection that is well."""
