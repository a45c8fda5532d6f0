"""Django settings; every value that can be configured is read from the environment through env.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from django.core.exceptions import ImproperlyConfigured

from agenthost import env, local_secrets
from agenthost.tracing import configuration as tracing_configuration
from agents_app import extras, installation, queue_names
from agents_app.outbound.policy import Allowance, Policy, port_number
from agents_app.providers import KEY_VARIABLES
from sessions_app.core.base import syslog

# Role and mode --------------------------------------------------------------------------
AGENTHOST_ROLE = env.role()
_data_directory = env.path("AGENTHOST_VAR_DIR", installation.data_directory())
if _data_directory is None:
    raise ImproperlyConfigured("AGENTHOST_VAR_DIR: must be set, because this user has no home directory.")
AGENTHOST_VAR_DIR: Path = _data_directory
AGENTHOST_REDIS_URL = env.url("REDIS_URL", ("redis", "rediss"))
_database = env.database("DATABASE_URL")
_clustered = AGENTHOST_REDIS_URL is not None or (_database is not None and _database.vendor == "postgresql")
AGENTHOST_MODE = (
    "embedded"
    if AGENTHOST_ROLE == "embedded"
    else "production"
    if _clustered or AGENTHOST_ROLE in ("web", "worker", "beat")
    else "embedded"
)

# Secrets ---------------------------------------------------------------------------------------------
_secret_key = env.text("AGENTHOST_SECRET_KEY")
AGENTHOST_KEY_RING = env.sealing_keys("AGENTHOST_KEY_RING")
if AGENTHOST_MODE == "embedded":
    _secret_key = _secret_key or local_secrets.read_or_create(AGENTHOST_VAR_DIR, "secret_key", local_secrets.new_secret)
    AGENTHOST_KEY_RING = AGENTHOST_KEY_RING or env.decode_keys(
        "the file key_ring in AGENTHOST_VAR_DIR",
        local_secrets.read_or_create(AGENTHOST_VAR_DIR, "key_ring", local_secrets.new_sealing_key),
    )
else:
    _missing = [
        name for name, value in (("AGENTHOST_SECRET_KEY", _secret_key), ("AGENTHOST_KEY_RING", AGENTHOST_KEY_RING)) if not value
    ]
    if _missing:
        raise ImproperlyConfigured(
            f"{' and '.join(_missing)} must be set (or …_FILE). With Postgres, with REDIS_URL and in the roles web, worker "
            "and beat no secrets are generated, because all processes need the same ones."
        )
SECRET_KEY = _secret_key
# Accepted beside it, never used to sign: the keys before and after it while it is rotated (docs/rotation.md).
SECRET_KEY_FALLBACKS = env.former_secrets("AGENTHOST_SECRET_KEY_FALLBACKS", _secret_key)
AGENTHOST_PROVIDER_KEYS: dict[str, str] = {
    provider: key for provider, names in KEY_VARIABLES.items() if (key := next(filter(None, map(env.text, names)), ""))
}

# The server ------------------------------------------------------------------------------------------
DEBUG = False
AGENTHOST_HOST = env.text("AGENTHOST_HOST", "127.0.0.1" if AGENTHOST_MODE == "embedded" else "0.0.0.0")  # noqa: S104
AGENTHOST_PORT = env.integer("AGENTHOST_PORT", 8000, most=65535)
# In production a web process with no host names does not start (agenthost.checks).
ALLOWED_HOSTS = env.items("AGENTHOST_ALLOWED_HOSTS", ["*"] if AGENTHOST_MODE == "embedded" else [])
AGENTHOST_PLAIN_HTTP = env.boolean("AGENTHOST_PLAIN_HTTP", default=AGENTHOST_MODE == "embedded")
CSRF_TRUSTED_ORIGINS = env.origins("AGENTHOST_CSRF_TRUSTED_ORIGINS", [], subdomains=True)
AGENTHOST_PROXIES = env.text("AGENTHOST_PROXIES", "127.0.0.1")
AGENTHOST_CORS_ORIGINS = env.origins("AGENTHOST_CORS_ORIGINS", ["*"])
AGENTHOST_PUBLIC_META = env.boolean("AGENTHOST_PUBLIC_META", default=False)
AGENTHOST_MAX_BODY_BYTES = env.integer("AGENTHOST_MAX_BODY_BYTES", 16 * 1024 * 1024, least=1024)
AGENTHOST_AHP_MAX_FRAME_BYTES = env.integer("AGENTHOST_AHP_MAX_FRAME_BYTES", 16 * 1024 * 1024, least=1024)
# One tenant may use half of this budget, and the largest body or frame must fit into that half.
_largest_body = max(AGENTHOST_MAX_BODY_BYTES, AGENTHOST_AHP_MAX_FRAME_BYTES)
AGENTHOST_BODIES_BYTES = env.integer("AGENTHOST_BODIES_BYTES", max(256 * 1024 * 1024, 4 * _largest_body), least=2 * _largest_body)
AGENTHOST_ANSWERS_BYTES = env.integer("AGENTHOST_ANSWERS_BYTES", 256 * 1024 * 1024, least=1024 * 1024)
AGENTHOST_BODY_SECONDS = env.duration("AGENTHOST_BODY_SECONDS", 60.0, least=0.1)
AGENTHOST_CONNECTIONS = env.integer("AGENTHOST_CONNECTIONS", 4096, least=1)
AGENTHOST_CONNECTIONS_PER_ADDRESS = env.integer("AGENTHOST_CONNECTIONS_PER_ADDRESS", 256, least=1)
AGENTHOST_HEADER_BYTES = env.integer("AGENTHOST_HEADER_BYTES", 32 * 1024, least=1024)
AGENTHOST_HEADER_SECONDS = env.duration("AGENTHOST_HEADER_SECONDS", 10.0, least=0.1)
AGENTHOST_SEND_SECONDS = env.duration("AGENTHOST_SEND_SECONDS", 60.0, least=0.1)
AGENTHOST_IDLE_SECONDS = env.duration("AGENTHOST_IDLE_SECONDS", 75.0, least=1.0)
AGENTHOST_WRONG_KEYS_PER_MINUTE = env.integer("AGENTHOST_WRONG_KEYS_PER_MINUTE", 60)
AGENTHOST_KEEPALIVE_SECONDS = env.duration("AGENTHOST_KEEPALIVE_SECONDS", 15.0, least=0.05)
AGENTHOST_AAP_STREAMS = env.integer("AGENTHOST_AAP_STREAMS", 1000, least=1)
AGENTHOST_AAP_STREAMS_PER_KEY = env.integer("AGENTHOST_AAP_STREAMS_PER_KEY", 500, least=1)
AGENTHOST_DRAIN_SECONDS = env.duration("AGENTHOST_DRAIN_SECONDS", 600.0)
AGENTHOST_METRICS_PORT = env.integer("AGENTHOST_METRICS_PORT", 0, most=65535)
AGENTHOST_METRICS_HOST = env.text("AGENTHOST_METRICS_HOST", "127.0.0.1")
AGENTHOST_TRACING = tracing_configuration.read()

# Live connections ------------------------------------------------------------------------------------
AGENTHOST_AHP_QUEUE_BYTES = env.integer("AGENTHOST_AHP_QUEUE_BYTES", 4 * 1024 * 1024, least=1024)
AGENTHOST_AHP_CONNECTIONS = env.integer("AGENTHOST_AHP_CONNECTIONS", 1000, least=1)
AGENTHOST_TENANT_WEBHOOKS = env.integer("AGENTHOST_TENANT_WEBHOOKS", 20, least=0)
AGENTHOST_TOKENS_PER_KEY = env.integer("AGENTHOST_TOKENS_PER_KEY", 10_000, least=1)
AGENTHOST_AHP_CONNECTIONS_PER_KEY = env.integer("AGENTHOST_AHP_CONNECTIONS_PER_KEY", 500, least=1)
AGENTHOST_AHP_SUBSCRIPTIONS = env.integer("AGENTHOST_AHP_SUBSCRIPTIONS", 500, least=1)
AGENTHOST_AHP_DISPATCHES_PER_SECOND = env.integer("AGENTHOST_AHP_DISPATCHES_PER_SECOND", 200)
AGENTHOST_AHP_PING_SECONDS = env.duration("AGENTHOST_AHP_PING_SECONDS", 20.0, least=0.05)
AGENTHOST_AHP_PRESENCE_SECONDS = env.duration("AGENTHOST_AHP_PRESENCE_SECONDS", 15.0, least=1.0)
AGENTHOST_AHP_GRACE_SECONDS = env.duration("AGENTHOST_AHP_GRACE_SECONDS", 30.0)
for _name, _seconds in (("PRESENCE", AGENTHOST_AHP_PRESENCE_SECONDS), ("GRACE", AGENTHOST_AHP_GRACE_SECONDS)):
    if _seconds > 86400:
        # A turn that waits for a client that never returns waits as long as this.
        raise ImproperlyConfigured(f"AGENTHOST_AHP_{_name}_SECONDS: the duration must be at most 24h.")

# Turns and workers -----------------------------------------------------------------------------------
AGENTHOST_AGENTS_FILE = env.existing_file("AGENTHOST_AGENTS_FILE")
AGENTHOST_LEASE_SECONDS = env.duration("AGENTHOST_LEASE_SECONDS", 15.0, least=0.2)
AGENTHOST_RENEW_SECONDS = env.duration("AGENTHOST_RENEW_SECONDS", 5.0, least=0.05)
if AGENTHOST_RENEW_SECONDS * 2 > AGENTHOST_LEASE_SECONDS:
    raise ImproperlyConfigured("AGENTHOST_RENEW_SECONDS: the value must be at most half of AGENTHOST_LEASE_SECONDS.")
AGENTHOST_DATABASE_OUTAGE_SECONDS = env.duration("AGENTHOST_DATABASE_OUTAGE_SECONDS", 60.0, least=1.0)
AGENTHOST_SWEEP_SECONDS = env.duration("AGENTHOST_SWEEP_SECONDS", 1.0, least=0.05)
AGENTHOST_QUEUE_GRACE_SECONDS = env.duration("AGENTHOST_QUEUE_GRACE_SECONDS", 2.0)
# Not those of all queues: a worker that serves every queue would run what a named queue keeps away from it.
_queues = env.parsed_items("AGENTHOST_QUEUES", queue_names.parsed, [queue_names.DEFAULT], most=queue_names.MOST_OF_WORKER)
AGENTHOST_QUEUES = tuple(dict.fromkeys(_queues)) or (queue_names.DEFAULT,)
AGENTHOST_WORKER_CONCURRENCY = env.integer("AGENTHOST_WORKER_CONCURRENCY", 400, least=1, most=10_000)
AGENTHOST_WORKER_GRACE_SECONDS = env.duration("AGENTHOST_WORKER_GRACE_SECONDS", 30.0)
AGENTHOST_DATABASE_THREADS = env.integer("AGENTHOST_DATABASE_THREADS", 8, least=1, most=200)
AGENTHOST_TOOL_THREADS = env.integer("AGENTHOST_TOOL_THREADS", 16, least=1, most=1000)
AGENTHOST_FETCH_POLICY = Policy(
    tuple(env.parsed_items("AGENTHOST_FETCH_ALLOW", Allowance.read, [])),
    frozenset(env.parsed_items("AGENTHOST_FETCH_PORTS", port_number, [80, 443])),
)
AGENTHOST_IMAGE_BYTES = env.integer("AGENTHOST_IMAGE_BYTES", 5 * 1024 * 1024, least=1024)
AGENTHOST_MESSAGE_BYTES = env.integer("AGENTHOST_MESSAGE_BYTES", 4 * 1024 * 1024, least=1024)
AGENTHOST_TURN_BYTES = env.integer("AGENTHOST_TURN_BYTES", 16 * 1024 * 1024, least=1024)
AGENTHOST_SESSION_BYTES = env.integer("AGENTHOST_SESSION_BYTES", 256 * 1024 * 1024, least=1024)
AGENTHOST_TOOL_LIST_BYTES = env.integer("AGENTHOST_TOOL_LIST_BYTES", 512 * 1024, least=1024)
AGENTHOST_DURABLE_DELTAS = env.boolean("AGENTHOST_DURABLE_DELTAS", default=False)
AGENTHOST_DELTA_RETENTION_SECONDS = env.duration("AGENTHOST_DELTA_RETENTION_SECONDS", 24 * 3600.0)
AGENTHOST_EVENT_RETENTION_SECONDS = env.duration("AGENTHOST_EVENT_RETENTION_SECONDS", 30 * 86400.0)
AGENTHOST_USAGE_RETENTION_SECONDS = env.duration("AGENTHOST_USAGE_RETENTION_SECONDS", 400 * 86400.0)

# Workspaces ------------------------------------------------------------------------------------------
AGENTHOST_WORKSPACES_DIR = env.path("AGENTHOST_WORKSPACES_DIR") or (
    AGENTHOST_VAR_DIR / "workspaces" if AGENTHOST_MODE == "embedded" else None
)
AGENTHOST_WORKSPACE_BYTES = env.integer("AGENTHOST_WORKSPACE_BYTES", 1024**3, least=1024)
AGENTHOST_WORKSPACE_FILES = env.integer("AGENTHOST_WORKSPACE_FILES", 100_000, least=1)
AGENTHOST_TENANT_WORKSPACE_BYTES = env.integer("AGENTHOST_TENANT_WORKSPACE_BYTES", 10 * 1024**3, least=1024)
AGENTHOST_TENANT_WORKSPACES = env.integer("AGENTHOST_TENANT_WORKSPACES", 1000, least=1)
AGENTHOST_WORKSPACE_DAYS = env.integer("AGENTHOST_WORKSPACE_DAYS", 30, least=1, most=36_500)
AGENTHOST_FILE_BYTES = env.integer("AGENTHOST_FILE_BYTES", 10 * 1024 * 1024, least=1024)
AGENTHOST_LIST_ENTRIES = env.integer("AGENTHOST_LIST_ENTRIES", 10_000, least=1, most=100_000)
AGENTHOST_COPY_BYTES = env.integer("AGENTHOST_COPY_BYTES", 1024**3, least=1024)
AGENTHOST_AHP_WATCHES = env.integer("AGENTHOST_AHP_WATCHES", 100, least=0)
AGENTHOST_TENANT_WATCHES = env.integer("AGENTHOST_TENANT_WATCHES", 500, least=0)
AGENTHOST_WATCH_DIRECTORIES = env.integer("AGENTHOST_WATCH_DIRECTORIES", 5_000, least=1)
AGENTHOST_TENANT_WATCH_DIRECTORIES = env.integer("AGENTHOST_TENANT_WATCH_DIRECTORIES", 20_000, least=1)
AGENTHOST_COPY_FILES = env.integer("AGENTHOST_COPY_FILES", 20_000, least=1)
AGENTHOST_FILE_THREADS = env.integer("AGENTHOST_FILE_THREADS", 8, least=1, most=200)
AGENTHOST_SANDBOX_UID = env.integer("AGENTHOST_SANDBOX_UID", 64_321, least=1, most=2**31 - 2)
AGENTHOST_SANDBOX_UIDS = env.integer("AGENTHOST_SANDBOX_UIDS", 1, least=1, most=2**31 - 1 - AGENTHOST_SANDBOX_UID)
AGENTHOST_SANDBOX_ROOT = env.path("AGENTHOST_SANDBOX_ROOT")
AGENTHOST_SANDBOX_CGROUPS = env.path("AGENTHOST_SANDBOX_CGROUPS")
AGENTHOST_SANDBOX_NETWORK = env.word("AGENTHOST_SANDBOX_NETWORK", ("off", "agents", "all"))
AGENTHOST_SANDBOX_NETWORK_HOSTS = tuple(env.parsed_items("AGENTHOST_SANDBOX_NETWORK_HOSTS", Allowance.read, []))
AGENTHOST_SANDBOX_NETWORK_POLICY = Policy(
    tuple(env.parsed_items("AGENTHOST_SANDBOX_NETWORK_ALLOW", Allowance.read, [])),
    frozenset(env.parsed_items("AGENTHOST_SANDBOX_NETWORK_PORTS", port_number, [80, 443])),
)
AGENTHOST_SANDBOX_NETWORK_CONNECTIONS = env.integer("AGENTHOST_SANDBOX_NETWORK_CONNECTIONS", 256, least=2, most=10_000)
AGENTHOST_SANDBOX_NETWORK_BYTES = env.integer("AGENTHOST_SANDBOX_NETWORK_BYTES", 10 * 1024**3, least=1024)
AGENTHOST_SANDBOX_NETWORK_BYTES_PER_SECOND = env.integer("AGENTHOST_SANDBOX_NETWORK_BYTES_PER_SECOND", 10 * 1024**2, least=1024)
AGENTHOST_UNSAFE_SANDBOX_MACHINE_NETWORK = env.boolean("AGENTHOST_UNSAFE_SANDBOX_MACHINE_NETWORK", default=False)
AGENTHOST_SANDBOX_MEMORY_BYTES = env.integer("AGENTHOST_SANDBOX_MEMORY_BYTES", 2 * 1024**3, least=64 * 1024**2)
AGENTHOST_SANDBOX_TOTAL_MEMORY_BYTES = env.limit("AGENTHOST_SANDBOX_TOTAL_MEMORY_BYTES")
AGENTHOST_SANDBOX_PROCESSES = env.integer("AGENTHOST_SANDBOX_PROCESSES", 256, least=8)

# Terminals -------------------------------------------------------------------------------------------
AGENTHOST_TERMINALS = env.boolean("AGENTHOST_TERMINALS", default=AGENTHOST_MODE == "embedded")
AGENTHOST_TENANT_TERMINALS = env.integer("AGENTHOST_TENANT_TERMINALS", 50, least=1, most=1000)
AGENTHOST_SESSION_TERMINALS = env.integer("AGENTHOST_SESSION_TERMINALS", 10, least=1, most=1000)
AGENTHOST_TERMINAL_CONCURRENCY = env.integer("AGENTHOST_TERMINAL_CONCURRENCY", 50, least=1, most=10_000)
AGENTHOST_TERMINAL_SCROLLBACK = env.integer("AGENTHOST_TERMINAL_SCROLLBACK", 256 * 1024, least=1024, most=16 * 1024**2)
AGENTHOST_TERMINAL_BYTES_PER_SECOND = env.integer("AGENTHOST_TERMINAL_BYTES_PER_SECOND", 1024 * 1024, least=1024)
AGENTHOST_TERMINAL_REPLAY_SECONDS = env.duration("AGENTHOST_TERMINAL_REPLAY_SECONDS", 900.0, least=60.0)
AGENTHOST_TERMINAL_IDLE_SECONDS = env.duration("AGENTHOST_TERMINAL_IDLE_SECONDS", 4 * 3600.0)
AGENTHOST_TERMINAL_LIFETIME_SECONDS = env.duration("AGENTHOST_TERMINAL_LIFETIME_SECONDS", 24 * 3600.0, least=1.0)
AGENTHOST_TERMINAL_EXITED_SECONDS = env.duration("AGENTHOST_TERMINAL_EXITED_SECONDS", 12 * 3600.0, least=1.0)

# MCP servers that are started as programs ------------------------------------------------------------
AGENTHOST_MCP_COMMANDS = env.boolean("AGENTHOST_MCP_COMMANDS", default=AGENTHOST_MODE == "embedded")
AGENTHOST_MCP_MOUNTS = tuple(env.parsed_items("AGENTHOST_MCP_MOUNTS", env.absolute_path, []))
AGENTHOST_MCP_PROCESSES = env.integer("AGENTHOST_MCP_PROCESSES", 32, least=1, most=10_000)
AGENTHOST_TENANT_MCP_PROCESSES = env.integer("AGENTHOST_TENANT_MCP_PROCESSES", 8, least=1, most=10_000)

# Default quotas of tenants; None: no limit -----------------------------------------------------------
AGENTHOST_QUOTAS: dict[str, int | None] = {
    "turns_at_once": env.limit("AGENTHOST_QUOTA_TURNS_AT_ONCE"),
    "turns_per_minute": env.limit("AGENTHOST_QUOTA_TURNS_PER_MINUTE"),
    "tokens_per_day": env.limit("AGENTHOST_QUOTA_TOKENS_PER_DAY"),
    "sessions": env.limit("AGENTHOST_QUOTA_SESSIONS"),
    "stored_bytes": env.limit("AGENTHOST_QUOTA_STORED_BYTES"),
    "request_bytes": env.limit("AGENTHOST_QUOTA_REQUEST_BYTES"),
}

# The database ----------------------------------------------------------------------------------------
AGENTHOST_DATABASE_POOL_MIN = env.integer("AGENTHOST_DATABASE_POOL_MIN", 1)
AGENTHOST_DATABASE_POOL_MAX = env.integer("AGENTHOST_DATABASE_POOL_MAX", 16, least=2)
if AGENTHOST_DATABASE_POOL_MIN > AGENTHOST_DATABASE_POOL_MAX:
    raise ImproperlyConfigured("AGENTHOST_DATABASE_POOL_MIN: the value must not be greater than AGENTHOST_DATABASE_POOL_MAX.")
AGENTHOST_DATABASE_POOL_WAIT = env.duration("AGENTHOST_DATABASE_POOL_WAIT", 4.0, least=0.1)
_connect_timeout = env.duration("AGENTHOST_DATABASE_CONNECT_TIMEOUT", 5.0, least=1.0)
_idle_in_transaction = env.duration("AGENTHOST_DATABASE_IDLE_IN_TRANSACTION", 30.0, least=1.0)
_lock_timeout = env.duration("AGENTHOST_DATABASE_LOCK_TIMEOUT", 5.0, least=0.01)
_WORKER_LOCK_TIMEOUT = 0.5


# libpq parameters: a connection to a server that vanished fails after seconds instead of the system's two hours, so that
# a worker connects to the replacement server before its leases expire.
_TCP_KEEPALIVE = {"keepalives_idle": "4", "keepalives_interval": "2", "keepalives_count": "2", "tcp_user_timeout": "8000"}
# Used only by migrate, which grants this role the privileges that the other processes need.
AGENTHOST_RUNTIME_ROLE = env.text("AGENTHOST_RUNTIME_ROLE")


def _postgres(database: env.Database) -> dict[str, Any]:
    parameters = [
        f"-c idle_in_transaction_session_timeout={int(_idle_in_transaction * 1000)}",
        "-c jit=off",
        "-c plan_cache_mode=force_generic_plan",
    ]
    if AGENTHOST_ROLE in ("web", "embedded"):
        # A client waits for the response. Migrations wait for locks without a limit.
        parameters.append(f"-c lock_timeout={int(_lock_timeout * 1000)}")
    elif AGENTHOST_ROLE == "worker":
        # Work that meets a lock is retried, and does not occupy a thread and a connection while it waits.
        parameters.append(f"-c lock_timeout={int(min(_lock_timeout, _WORKER_LOCK_TIMEOUT) * 1000)}")
    options = dict(database.options)
    options["options"] = " ".join([*parameters, options.get("options", "")]).strip()
    options.setdefault("connect_timeout", str(int(_connect_timeout)))
    for name, value in _TCP_KEEPALIVE.items():
        options.setdefault(name, value)
    options.setdefault("application_name", f"agenthost {AGENTHOST_ROLE}".strip())
    return {
        "ENGINE": "agenthost.postgres",
        "NAME": database.name,
        "USER": database.user,
        "PASSWORD": database.password,
        "HOST": database.host,
        "PORT": database.port,
        "OPTIONS": {
            **options,
            # Only statements that ask for it are prepared (core.base.raw_sql), however often others run.
            "prepare_threshold": 2**31,
            "pool": {
                "min_size": AGENTHOST_DATABASE_POOL_MIN,
                "max_size": AGENTHOST_DATABASE_POOL_MAX,
                "timeout": AGENTHOST_DATABASE_POOL_WAIT,
                "max_idle": 300.0,
            },
        },
    }


def _sqlite(path: Path) -> dict[str, Any]:
    return {
        "ENGINE": "agenthost.sqlite",
        "NAME": path,
        # A thread keeps its connection: opening one costs as much as a small request.
        "CONN_MAX_AGE": None,
        "OPTIONS": {
            # A deferred transaction that reads first and then writes fails at once, whatever the timeout, if
            # another one wrote in between. An IMMEDIATE transaction waits for its turn instead.
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;",
        },
        # A file, because an in-memory database can be used by one thread only.
        "TEST": {"NAME": AGENTHOST_VAR_DIR / "test.sqlite3"},
    }


if _database is not None and _database.vendor == "postgresql":
    DATABASES = {"default": _postgres(_database)}
else:
    local_secrets.restrict_directory(AGENTHOST_VAR_DIR)
    # A relative path of DATABASE_URL begins at the checkout, or at the data directory of a package.
    _sqlite_home = installation.ROOT if installation.IS_CHECKOUT else AGENTHOST_VAR_DIR
    _sqlite_file = _sqlite_home / _database.name if _database else AGENTHOST_VAR_DIR / "agenthost.sqlite3"
    local_secrets.restrict_database(_sqlite_file)
    DATABASES = {"default": _sqlite(_sqlite_file)}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# Announcements and tasks -----------------------------------------------------------------------------
CHANNEL_LAYERS = {
    "default": {"BACKEND": "sessions_app.core.log.broadcast.layer.ChannelLayer", "CONFIG": {"url": AGENTHOST_REDIS_URL}}
}
AGENTHOST_BROKER_URL = env.url("CELERY_BROKER_URL", ("redis", "rediss", "amqp", "amqps")) or AGENTHOST_REDIS_URL

# Django ----------------------------------------------------------------------------------------------
INSTALLED_APPS = [
    "agenthost",
    # Before Django's admin, because it overrides the admin's base template.
    "sessions_app",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "rest_framework",
    # Static files of the pages at /docs/.
    "drf_spectacular_sidecar",
    "channels",
    "axes",
    # Sign-in: pages at /accounts/, second factors, sign-in with a company's OpenID provider.
    "allauth",
    "allauth.account",
    "allauth.mfa",
    "allauth.socialaccount",
    "allauth.usersessions",
    "django.contrib.humanize",
    "agents_app",
]
MIDDLEWARE = [
    "agenthost.middleware.request_id",
    "agenthost.middleware.forwarded_scheme",
    "django.middleware.security.SecurityMiddleware",
    "agenthost.static_files.static_files",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "sessions_app.accounts.policy.protected_pages",
    "sessions_app.accounts.acting.known_actor",
    "sessions_app.accounts.second_factor.RequireSecondFactor",
    "allauth.account.middleware.AccountMiddleware",
    "axes.middleware.AxesMiddleware",
]
AUTHENTICATION_BACKENDS = ["axes.backends.AxesStandaloneBackend", "django.contrib.auth.backends.ModelBackend"]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
ROOT_URLCONF = "agenthost.urls"
ASGI_APPLICATION = "agenthost.asgi.application"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in (
        "UserAttributeSimilarityValidator",
        "MinimumLengthValidator",
        "CommonPasswordValidator",
        "NumericPasswordValidator",
    )
]
# Sign-in. django-allauth has the pages; we offer no sign-up, and its limits of rates are replaced by those below.
LOGIN_URL = "account_login"
LOGIN_REDIRECT_URL = "console:home"
ACCOUNT_ADAPTER = "sessions_app.accounts.adapters.AccountAdapter"
ACCOUNT_LOGIN_METHODS = {"username"}
ACCOUNT_SIGNUP_FIELDS = ["username*", "password1*", "password2*"]
ACCOUNT_EMAIL_VERIFICATION = "none"
ACCOUNT_UNIQUE_EMAIL = False
ACCOUNT_RATE_LIMITS = False
ACCOUNT_SESSION_REMEMBER = False
ACCOUNT_LOGOUT_REDIRECT_URL = "account_login"
ACCOUNT_REAUTHENTICATION_REQUIRED = True
ACCOUNT_REAUTHENTICATION_TIMEOUT = 900
ACCOUNT_FORMS = {
    "login": "sessions_app.accounts.forms.LoginForm",
    "reauthenticate": "sessions_app.accounts.forms.PasswordAgainForm",
    "change_password": "sessions_app.accounts.forms.ChangePasswordForm",
}
MFA_ADAPTER = "sessions_app.accounts.adapters.SecondFactorAdapter"
MFA_SUPPORTED_TYPES = ["totp", "recovery_codes", "webauthn"]
MFA_PASSKEY_LOGIN_ENABLED = True
# Clocks of phones may be some seconds off.
MFA_TOTP_TOLERANCE = 1
MFA_RECOVERY_CODES_SHOW_ONCE = True
MFA_WEBAUTHN_ALLOW_INSECURE_ORIGIN = AGENTHOST_PLAIN_HTTP
MFA_FORMS = {
    "authenticate": "sessions_app.accounts.forms.AuthenticateForm",
    "reauthenticate": "sessions_app.accounts.forms.CodeAgainForm",
}
AGENTHOST_STAFF_SECOND_FACTOR = env.boolean("AGENTHOST_STAFF_SECOND_FACTOR", default=AGENTHOST_MODE != "embedded")
AGENTHOST_OIDC_ISSUER = env.url("AGENTHOST_OIDC_ISSUER", ("https", "http")) or ""
AGENTHOST_OIDC_NAME = env.text("AGENTHOST_OIDC_NAME", "your company")
_oidc_client = env.text("AGENTHOST_OIDC_CLIENT_ID")
_oidc_secret = env.text("AGENTHOST_OIDC_CLIENT_SECRET")
if AGENTHOST_OIDC_ISSUER and not (_oidc_client and _oidc_secret):
    raise ImproperlyConfigured("AGENTHOST_OIDC_ISSUER: set AGENTHOST_OIDC_CLIENT_ID and AGENTHOST_OIDC_CLIENT_SECRET as well.")
if AGENTHOST_OIDC_ISSUER.startswith("http:") and not AGENTHOST_PLAIN_HTTP:
    raise ImproperlyConfigured("AGENTHOST_OIDC_ISSUER: the value must begin with https:// (AGENTHOST_PLAIN_HTTP is off).")
SOCIALACCOUNT_ADAPTER = "sessions_app.accounts.adapters.CompanyAdapter"
SOCIALACCOUNT_AUTO_SIGNUP = True
SOCIALACCOUNT_EMAIL_VERIFICATION = "none"
SOCIALACCOUNT_EMAIL_AUTHENTICATION = False
SOCIALACCOUNT_STORE_TOKENS = False
SOCIALACCOUNT_LOGIN_ON_GET = False
SOCIALACCOUNT_REQUESTS_TIMEOUT = 5
SOCIALACCOUNT_OPENID_CONNECT_URL_PREFIX = "oidc"
SOCIALACCOUNT_PROVIDERS: dict[str, Any] = {}
if AGENTHOST_OIDC_ISSUER:
    if not extras.is_installed(extras.EXTRAS["oidc"]):
        raise ImproperlyConfigured(f"AGENTHOST_OIDC_ISSUER: the extra oidc is not installed: {extras.command('oidc')}.")
    INSTALLED_APPS.append("allauth.socialaccount.providers.openid_connect")
    SOCIALACCOUNT_PROVIDERS["openid_connect"] = {
        "OAUTH_PKCE_ENABLED": True,
        "APPS": [
            {
                "provider_id": "company",
                "name": AGENTHOST_OIDC_NAME,
                "client_id": _oidc_client,
                "secret": _oidc_secret,
                "settings": {"server_url": AGENTHOST_OIDC_ISSUER},
            }
        ],
    }

# Mail: only invitations are mailed, and their links are shown as well ---------------------------------
_smtp = env.url("AGENTHOST_SMTP_URL", ("smtp", "smtps", "smtp+starttls"))
_mail = urlsplit(_smtp) if _smtp else None
EMAIL_HOST = (_mail.hostname or "") if _mail else ""
if _mail:
    EMAIL_PORT = _mail.port or {"smtp": 25, "smtps": 465}.get(_mail.scheme, 587)
    EMAIL_HOST_USER, EMAIL_HOST_PASSWORD = unquote(_mail.username or ""), unquote(_mail.password or "")
    EMAIL_USE_SSL, EMAIL_USE_TLS = _mail.scheme == "smtps", _mail.scheme == "smtp+starttls"
EMAIL_TIMEOUT = 10
DEFAULT_FROM_EMAIL = env.text("AGENTHOST_MAIL_FROM", "agenthost@localhost")

# Sign-in limits. django-axes calls our handler; sessions_app.core.tenancy.sign_ins applies the limits.
AGENTHOST_SIGN_IN_FAILURES = env.integer("AGENTHOST_SIGN_IN_FAILURES", 5, least=1, most=1000)
AGENTHOST_SIGN_IN_FAILURES_OF_ADDRESS = env.integer("AGENTHOST_SIGN_IN_FAILURES_OF_ADDRESS", 20, least=1, most=1000)
AGENTHOST_SIGN_IN_FAILURES_OF_ACCOUNT = env.integer("AGENTHOST_SIGN_IN_FAILURES_OF_ACCOUNT", 50, least=1, most=1000)
AGENTHOST_SIGN_IN_COOL_OFF_SECONDS = env.duration("AGENTHOST_SIGN_IN_COOL_OFF_SECONDS", 900.0, least=1.0)
AXES_HANDLER = "sessions_app.accounts.sign_in.Handler"
AXES_LOCKOUT_CALLABLE = "sessions_app.accounts.sign_in.refused"
AXES_LOCKOUT_PARAMETERS = [["username", "ip_address"], "ip_address"]
AXES_RESET_COOL_OFF_ON_FAILURE_DURING_LOCKOUT = False
AXES_ENABLE_ADMIN = AXES_VERBOSE = False
# Whether staff give a reason before they read a transcript.
AGENTHOST_AUDIT_API_READS = env.boolean("AGENTHOST_AUDIT_API_READS", default=True)
AGENTHOST_AUDIT_SYSLOG = env.text("AGENTHOST_AUDIT_SYSLOG")
if AGENTHOST_AUDIT_SYSLOG:
    try:
        syslog.read(AGENTHOST_AUDIT_SYSLOG)
    except ValueError as error:
        raise ImproperlyConfigured(f"AGENTHOST_AUDIT_SYSLOG: the address of the syslog server is not valid: {error}.") from None
AGENTHOST_AUDIT_WEBHOOK_URL = env.url("AGENTHOST_AUDIT_WEBHOOK_URL", ("https", "http"))
AGENTHOST_AUDIT_WEBHOOK_SECRET = env.webhook_secret("AGENTHOST_AUDIT_WEBHOOK_SECRET")
if AGENTHOST_AUDIT_WEBHOOK_URL and not AGENTHOST_AUDIT_WEBHOOK_SECRET:
    raise ImproperlyConfigured(
        "AGENTHOST_AUDIT_WEBHOOK_URL needs AGENTHOST_AUDIT_WEBHOOK_SECRET, which signs the requests. Make one with:"
        " echo whsec_$(openssl rand -base64 32)"
    )
AGENTHOST_TRANSCRIPT_REASON = env.boolean("AGENTHOST_TRANSCRIPT_REASON", default=False)
# AAP's paths have no trailing slash (A1); the admin handles its own.
APPEND_SLASH = False
LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_TZ = True
USE_I18N = False
STATIC_URL = "/static/"
# Static files are served from the installed packages, found at the first request; collectstatic is not needed.
STATIC_ROOT = None
WHITENOISE_USE_FINDERS = True
WHITENOISE_AUTOREFRESH = False
# Of addresses without the digest of agenthost.static_files.
WHITENOISE_MAX_AGE = 0
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "agenthost.static_files.Storage"},
}
# The guard limits every request body before Django sees it, and answers 413 in the protocol's format.
DATA_UPLOAD_MAX_MEMORY_SIZE = None
FILE_UPLOAD_MAX_MEMORY_SIZE = 2_621_440
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
SECURE_CROSS_ORIGIN_OPENER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_AGE = 12 * 3600
CSRF_COOKIE_SAMESITE = "Lax"
# Behind a TLS proxy the scheme comes from X-Forwarded-Proto, which uvicorn trusts only from AGENTHOST_PROXIES.
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = SECURE_SSL_REDIRECT = not AGENTHOST_PLAIN_HTTP
# The guard sends the header with every HTTPS response; Django's middleware would add it to pages only.
_HSTS_SECONDS = int(env.duration("AGENTHOST_HSTS_SECONDS", 365 * 86400.0))
SECURE_HSTS_SECONDS = 0 if AGENTHOST_PLAIN_HTTP else _HSTS_SECONDS
SECURE_HSTS_INCLUDE_SUBDOMAINS = env.boolean("AGENTHOST_HSTS_SUBDOMAINS", default=False)
# W005 (HSTS for subdomains) and W021 (HSTS preload) concern the whole domain. One server in it cannot decide them, so
# `check --deploy` does not warn about them.
SILENCED_SYSTEM_CHECKS = ["security.W005", "security.W021"]
REST_FRAMEWORK: dict[str, Any] = {
    "DEFAULT_AUTHENTICATION_CLASSES": [],
    "DEFAULT_PERMISSION_CLASSES": [],
    "DEFAULT_PARSER_CLASSES": [],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "UNAUTHENTICATED_USER": None,
    "UNAUTHENTICATED_TOKEN": None,
}

if AGENTHOST_ROLE in ("worker", "beat"):
    # These roles answer no requests, so they load neither the admin nor the HTTP side of the protocols.
    INSTALLED_APPS = ["agenthost"]
    if AGENTHOST_ROLE == "worker":
        INSTALLED_APPS += ["sessions_app", "django.contrib.auth", "django.contrib.contenttypes", "agents_app"]
    MIDDLEWARE, TEMPLATES, ROOT_URLCONF = [], [], ""

# drf_spectacular is imported only when the API documentation is requested.
SPECTACULAR_SETTINGS: dict[str, Any] = {
    "OAS_VERSION": "3.1.0",
    # Keep the order of the routes.
    "SORT_OPERATIONS": False,
    "SCHEMA_COERCE_PATH_PK": False,
    "POSTPROCESSING_HOOKS": [],
}

# Logs ------------------------------------------------------------------------------------------------
AGENTHOST_LOG_LEVEL = env.text("AGENTHOST_LOG_LEVEL", "INFO").upper()
if AGENTHOST_LOG_LEVEL not in ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"):
    raise ImproperlyConfigured("AGENTHOST_LOG_LEVEL: the value must be one of DEBUG, INFO, WARNING, ERROR, CRITICAL.")
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "filters": {
        "context": {"()": "agenthost.observability.ContextFilter"},
        "masking": {"()": "agenthost.observability.MaskingFilter"},
        "connection_attempts": {"()": "agenthost.observability.ConnectionAttemptsFilter"},
        "repeats": {"()": "agenthost.observability.RepeatsFilter"},
    },
    "formatters": {
        "json": {"()": "agenthost.observability.JsonFormatter"},
        "readable": {"()": "agenthost.observability.ReadableFormatter"},
    },
    "handlers": {
        "stderr": {
            "class": "logging.StreamHandler",
            "formatter": "readable" if AGENTHOST_MODE == "embedded" else "json",
            "filters": ["context", "masking"],
        },
        "null": {"class": "logging.NullHandler"},
    },
    "root": {"handlers": ["stderr"], "level": AGENTHOST_LOG_LEVEL},
    "loggers": {
        # Django's own handlers would write each line twice, and operators do not need its 4xx lines.
        "django": {"handlers": ["null"], "level": "INFO", "propagate": True},
        "django.request": {"level": "ERROR"},
        "django.server": {"handlers": ["null"], "level": "INFO", "propagate": True},
        "uvicorn": {"level": "WARNING"},
        "uvicorn.error": {"level": "WARNING"},
        # uvicorn would log query strings, which may contain tokens.
        "uvicorn.access": {"level": "CRITICAL", "propagate": False},
        # sessions_app.core.tenancy.sign_ins logs sign-ins.
        "axes": {"level": "WARNING"},
        "celery": {"level": "WARNING"},
        "celery.worker.consumer.consumer": {"filters": ["repeats"]},
        "kombu": {"level": "WARNING"},
        "daphne": {"level": "WARNING"},
        "aiohttp": {"level": "WARNING"},
        "httpx": {"level": "WARNING"},
        "httpx2": {"level": "WARNING"},
        # The library would log responses of MCP servers; agents_app.mcp logs their errors.
        "mcp": {"level": "CRITICAL"},
        "client": {"level": "CRITICAL"},
        "psycopg.pool": {"level": "WARNING", "filters": ["connection_attempts"]},
    },
}
