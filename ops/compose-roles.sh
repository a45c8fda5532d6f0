#!/bin/sh
# Makes the two roles of compose.yaml in Postgres, or gives them their passwords anew: `agenthost` owns the database and
# migrates it, `agenthost_run` is what `migrate` grants to (AGENTHOST_RUNTIME_ROLE). The image runs it when it makes its volume.
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
