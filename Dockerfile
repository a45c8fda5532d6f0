# One image for every role: docker run IMAGE ROLE, with a role of ops/entrypoint. Without arguments: the embedded server.
# Agents that need extras (docs/providers.md): docker build --build-arg EXTRAS=bedrock,vertex
ARG PYTHON=python:3.12-slim

FROM ${PYTHON} AS build
WORKDIR /app
# The environment alone: it changes with the lock, the code with every commit.
ENV PIP_NO_CACHE_DIR=1
COPY requirements.lock ./
COPY ops/environment.py ops/environment.py
ARG EXTRAS=""
RUN python -I ops/environment.py --with "${EXTRAS}"
# The bill of materials of these packages, with licences: docker run --entrypoint cat IMAGE sbom.json
COPY pyproject.toml ./
COPY ops/sbom.py ops/sbom.py
RUN .venv/bin/python -m ops.sbom --with "${EXTRAS}" --output sbom.json

FROM ${PYTHON}
ENV PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    AGENTHOST_HOST=0.0.0.0 \
    AGENTHOST_VAR_DIR=/app/var
WORKDIR /app
# The sandbox of terminals (docs/production.md has what its container needs), and the search of the tool search_files.
RUN apt-get update -qq \
    && apt-get install -qq -y --no-install-recommends bubblewrap ripgrep \
    && rm -rf /var/lib/apt/lists/*
# A number, so that a cluster that asks for a non-root user can see that it is one.
RUN groupadd --system --gid 10001 agenthost \
    && useradd --system --uid 10001 --gid 10001 --home-dir /app --no-create-home --shell /usr/sbin/nologin agenthost \
    && install -d -o 10001 -g 10001 -m 0700 /app/var /workspaces
COPY --from=build /app/.venv .venv
COPY --from=build /app/sbom.json ./
COPY manage.py pyproject.toml README.md CHANGELOG.md ./
COPY ops/entrypoint ops/entrypoint
COPY agents_app agents_app
COPY sessions_app sessions_app
COPY agenthost agenthost
# Without times in the compiled files: the same code gives the same layer, and the root is read-only anyway.
RUN .venv/bin/python -m compileall -q --invalidation-mode unchecked-hash agents_app sessions_app agenthost
USER 10001:10001
EXPOSE 8000
# The embedded server's data; /workspaces is for a volume of AGENTHOST_WORKSPACES_DIR, which gets this owner. The other roles write nothing that must be kept.
VOLUME ["/app/var"]
STOPSIGNAL SIGTERM
# No HEALTHCHECK: it would be the same for all roles. ops/compose.yaml and ops/kubernetes have one for each.
ENTRYPOINT ["ops/entrypoint"]
CMD ["embedded"]
