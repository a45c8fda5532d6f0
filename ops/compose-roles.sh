#!/bin/sh
# Creates the two Postgres roles of compose.yaml, or sets their passwords again: `agenthost` owns and migrates the database,
# `agenthost_run` gets its rights from `migrate` (AGENTHOST_RUNTIME_ROLE). The image runs this when it creates its volume.
set -eu
SECRETS=${SECRETS:-/run/secrets}
export SECRETS
psql -v ON_ERROR_STOP=1 --no-psqlrc --quiet --username "$POSTGRES_USER" --dbname agenthost <<'SQL'
\set owner_password `cat "$SECRETS/postgres_owner_password"`
\set run_password `cat "$SECRETS/postgres_run_password"`
select format('create role %I login', name) from unnest(array['agenthost', 'agenthost_run']) as name
  where not exists (select from pg_roles where rolname = name) \gexec
alter role agenthost password :'owner_password';
alter role agenthost_run password :'run_password';
alter database agenthost owner to agenthost;
SQL
