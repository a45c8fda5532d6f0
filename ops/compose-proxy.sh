#!/bin/sh
# Runs nginx in compose.yaml's service proxy, with ops/nginx/agenthost.conf: what is marked CHANGE there is filled in for the
# containers, as user nginx on a read-only root.
set -eu
CONF=${CONF:-/opt/agenthost.conf}
SECRETS=${SECRETS:-/run/secrets}
PLACE=${PLACE:-/tmp}
PORT=${PORT:-8443}
PLAIN_PORT=${PLAIN_PORT:-8080}
# Each service of the role web.
WEBS=${WEBS:-web:8000 web-2:8000}

servers=
for web in $WEBS; do servers="$servers server $web;"; done
sed -e "s|server 127\.0\.0\.1:8000;|$servers|" \
  -e "s|listen 80;|listen $PLAIN_PORT;|" \
  -e "s|listen 443 |listen $PORT |" \
  -e "s|server_name agents\.example\.org;|server_name _;|" \
  -e "s|/etc/nginx/agenthost\.crt|$SECRETS/tls_certificate|" \
  -e "s|/etc/nginx/agenthost\.key|$SECRETS/tls_key|" \
  -e "s|/var/log/nginx/agenthost-error\.log|/dev/stderr|" \
  -e "s|/var/log/nginx/agenthost\.log|/dev/stdout|" \
  "$CONF" >"$PLACE/agenthost.conf"
if grep -E 'example\.org|127\.0\.0\.1|/etc/nginx|/var/log' "$PLACE/agenthost.conf" >&2; then
  echo "compose-proxy.sh: these lines of agenthost.conf have changed and are not filled in" >&2
  exit 1
fi
cat >"$PLACE/nginx.conf" <<MAIN
daemon off;
pid $PLACE/nginx.pid;
error_log /dev/stderr notice;
worker_processes auto;
worker_rlimit_nofile 16384;
events { worker_connections 8192; }
http {
    client_body_temp_path $PLACE/body;
    proxy_temp_path $PLACE/proxy;
    fastcgi_temp_path $PLACE/fastcgi;
    uwsgi_temp_path $PLACE/uwsgi;
    scgi_temp_path $PLACE/scgi;
    include $PLACE/agenthost.conf;
}
MAIN
exec nginx -e /dev/stderr -c "$PLACE/nginx.conf"
