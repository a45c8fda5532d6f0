-- Written by ops/schema from the migrations: not to be edited.
-- migration contenttypes.0001_initial
-- migration auth.0001_initial
-- migration account.0001_initial
-- migration account.0002_email_max_length
-- migration account.0003_alter_emailaddress_create_unique_verified_email
-- migration account.0004_alter_emailaddress_drop_unique_email
-- migration account.0005_emailaddress_idx_upper_email
-- migration account.0006_emailaddress_lower
-- migration account.0007_emailaddress_idx_email
-- migration account.0008_emailaddress_unique_primary_email_fixup
-- migration account.0009_emailaddress_unique_primary_email
-- migration admin.0001_initial
-- migration admin.0002_logentry_remove_auto_add
-- migration admin.0003_logentry_add_action_flag_choices
-- migration contenttypes.0002_remove_content_type_name
-- migration auth.0002_alter_permission_name_max_length
-- migration auth.0003_alter_user_email_max_length
-- migration auth.0004_alter_user_username_opts
-- migration auth.0005_alter_user_last_login_null
-- migration auth.0006_require_contenttypes_0002
-- migration auth.0007_alter_validators_add_error_messages
-- migration auth.0008_alter_user_username_max_length
-- migration auth.0009_alter_user_last_name_max_length
-- migration auth.0010_alter_group_name_max_length
-- migration auth.0011_update_proxy_permissions
-- migration auth.0012_alter_user_first_name_max_length
-- migration axes.0001_initial
-- migration axes.0002_auto_20151217_2044
-- migration axes.0003_auto_20160322_0929
-- migration axes.0004_auto_20181024_1538
-- migration axes.0005_remove_accessattempt_trusted
-- migration axes.0006_remove_accesslog_trusted
-- migration axes.0007_alter_accessattempt_unique_together
-- migration axes.0008_accessfailurelog
-- migration axes.0009_add_session_hash
-- migration axes.0010_accessattemptexpiration
-- migration mfa.0001_initial
-- migration mfa.0002_authenticator_timestamps
-- migration mfa.0003_authenticator_type_uniq
-- migration sessions.0001_initial
-- migration sessions_app.0001_initial
-- migration sessions_app.0002_journal
-- migration sessions_app.0003_idempotency_and_deadlines
-- migration sessions_app.0004_quotas_and_retention
-- migration sessions_app.0005_count_what_is_there
-- migration sessions_app.0006_room_for_usage
-- migration sessions_app.0007_many_clients
-- migration sessions_app.0008_read_forms
-- migration sessions_app.0009_shown_agents
-- migration sessions_app.0010_model_use
-- migration sessions_app.0011_due_summaries
-- migration sessions_app.0012_scopes_are_rights
-- migration sessions_app.0013_installation_marks
-- migration sessions_app.0014_turn_failures
-- migration sessions_app.0015_sessions_of_agents
-- migration sessions_app.0016_audit_of_actors
-- migration sessions_app.0017_measure_of_sessions
-- migration sessions_app.0018_bytes_of_sessions
-- migration sessions_app.0019_revoked_keys
-- migration sessions_app.0020_fewer_indexes
-- migration sessions_app.0021_check_keys_at_once
-- migration sessions_app.0022_leases_of_workers
-- migration sessions_app.0023_heap_only_updates
-- migration sessions_app.0024_room_for_session_updates
-- migration sessions_app.0025_one_live_turn_again
-- migration sessions_app.0026_workspaces
-- migration sessions_app.0027_terminals
-- migration sessions_app.0028_file_edits
-- migration sessions_app.0029_workspace_template
-- migration sessions_app.0030_commands
-- migration sessions_app.0031_terminal_network
-- migration sessions_app.0032_counted_output
-- migration sessions_app.0033_figures
-- migration sessions_app.0034_previews_and_attached_files
-- migration sessions_app.0035_accounts
-- migration sessions_app.0036_audit_chain
-- migration sessions_app.0037_short_lived_tokens
-- migration sessions_app.0038_tenant_deletion
-- migration sessions_app.0039_webhooks
-- migration sessions_app.0040_search
-- migration sessions_app.0041_index_of_words
-- migration sessions_app.0042_key_addresses
-- migration sessions_app.0043_clients_of_ahp_1
-- migration sessions_app.0044_audit_sinks
-- migration sessions_app.0045_agents_of_process
-- migration sessions_app.0046_times_of_turns
-- migration sessions_app.0047_indexes_of_lists
-- migration sessions_app.0048_usage_of_keys_and_failures
-- migration sessions_app.0049_plural_of_deliveries
-- migration sessions_app.0050_model_of_a_turn
-- migration sessions_app.0051_new_families_from
-- migration sessions_app.0052_reopened_turns
-- migration sessions_app.0053_kept_terminals
-- migration sessions_app.0054_index_of_disposed_terminals
-- migration sessions_app.0055_clients_that_stay
-- migration sessions_app.0056_streams_of_processes
-- migration sessions_app.0057_event_partitions
-- migration sessions_app.0058_partition_events
-- migration sessions_app.0059_queues
-- migration sessions_app.0060_queues_of_summaries
-- migration sessions_app.0061_queues_of_workers
-- migration sessions_app.0062_index_of_queues
-- migration sessions_app.0063_traces_of_turns
-- migration sessions_app.0064_traces_of_pending_messages
-- migration sessions_app.0065_traces_of_commands
-- migration socialaccount.0001_initial
-- migration socialaccount.0002_token_max_lengths
-- migration socialaccount.0003_extra_data_default_dict
-- migration socialaccount.0004_app_provider_id_settings
-- migration socialaccount.0005_socialtoken_nullable_app
-- migration socialaccount.0006_alter_socialaccount_extra_data
-- migration usersessions.0001_initial
CREATE TABLE "django_migrations" ("id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "app" varchar(255) NOT NULL, "name" varchar(255) NOT NULL, "applied" datetime NOT NULL);
CREATE TABLE "auth_group_permissions" ("id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "group_id" integer NOT NULL REFERENCES "auth_group" ("id") DEFERRABLE INITIALLY DEFERRED, "permission_id" integer NOT NULL REFERENCES "auth_permission" ("id") DEFERRABLE INITIALLY DEFERRED);
CREATE TABLE "auth_user_groups" ("id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "user_id" integer NOT NULL REFERENCES "auth_user" ("id") DEFERRABLE INITIALLY DEFERRED, "group_id" integer NOT NULL REFERENCES "auth_group" ("id") DEFERRABLE INITIALLY DEFERRED);
CREATE TABLE "auth_user_user_permissions" ("id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "user_id" integer NOT NULL REFERENCES "auth_user" ("id") DEFERRABLE INITIALLY DEFERRED, "permission_id" integer NOT NULL REFERENCES "auth_permission" ("id") DEFERRABLE INITIALLY DEFERRED);
CREATE TABLE "account_emailconfirmation" ("id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "created" datetime NOT NULL, "sent" datetime NULL, "key" varchar(64) NOT NULL UNIQUE, "email_address_id" integer NOT NULL REFERENCES "account_emailaddress" ("id") DEFERRABLE INITIALLY DEFERRED);
CREATE TABLE "account_emailaddress" ("id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "verified" bool NOT NULL, "primary" bool NOT NULL, "user_id" integer NOT NULL REFERENCES "auth_user" ("id") DEFERRABLE INITIALLY DEFERRED, "email" varchar(254) NOT NULL);
CREATE TABLE "django_admin_log" ("id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "object_id" text NULL, "object_repr" varchar(200) NOT NULL, "action_flag" smallint unsigned NOT NULL CHECK ("action_flag" >= 0), "change_message" text NOT NULL, "content_type_id" integer NULL REFERENCES "django_content_type" ("id") DEFERRABLE INITIALLY DEFERRED, "user_id" integer NOT NULL REFERENCES "auth_user" ("id") DEFERRABLE INITIALLY DEFERRED, "action_time" datetime NOT NULL);
CREATE TABLE "django_content_type" ("id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "app_label" varchar(100) NOT NULL, "model" varchar(100) NOT NULL);
CREATE TABLE "auth_permission" ("id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "content_type_id" integer NOT NULL REFERENCES "django_content_type" ("id") DEFERRABLE INITIALLY DEFERRED, "codename" varchar(100) NOT NULL, "name" varchar(255) NOT NULL);
CREATE TABLE "auth_group" ("id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "name" varchar(150) NOT NULL UNIQUE);
CREATE TABLE "auth_user" ("id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "password" varchar(128) NOT NULL, "last_login" datetime NULL, "is_superuser" bool NOT NULL, "username" varchar(150) NOT NULL UNIQUE, "last_name" varchar(150) NOT NULL, "email" varchar(254) NOT NULL, "is_staff" bool NOT NULL, "is_active" bool NOT NULL, "date_joined" datetime NOT NULL, "first_name" varchar(150) NOT NULL);
CREATE TABLE "axes_accessattempt" ("id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "user_agent" varchar(255) NOT NULL, "ip_address" char(39) NULL, "username" varchar(255) NULL, "http_accept" varchar(1025) NOT NULL, "path_info" varchar(255) NOT NULL, "attempt_time" datetime NOT NULL, "get_data" text NOT NULL, "post_data" text NOT NULL, "failures_since_start" integer unsigned NOT NULL CHECK ("failures_since_start" >= 0));
CREATE TABLE "axes_accessfailurelog" ("id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "user_agent" varchar(255) NOT NULL, "ip_address" char(39) NULL, "username" varchar(255) NULL, "http_accept" varchar(1025) NOT NULL, "path_info" varchar(255) NOT NULL, "attempt_time" datetime NOT NULL, "locked_out" bool NOT NULL);
CREATE TABLE "axes_accesslog" ("id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "user_agent" varchar(255) NOT NULL, "ip_address" char(39) NULL, "username" varchar(255) NULL, "http_accept" varchar(1025) NOT NULL, "path_info" varchar(255) NOT NULL, "attempt_time" datetime NOT NULL, "logout_time" datetime NULL, "session_hash" varchar(64) NOT NULL);
CREATE TABLE "axes_accessattemptexpiration" ("access_attempt_id" integer NOT NULL PRIMARY KEY REFERENCES "axes_accessattempt" ("id") DEFERRABLE INITIALLY DEFERRED, "expires_at" datetime NOT NULL);
CREATE TABLE "mfa_authenticator" ("id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "type" varchar(20) NOT NULL, "data" text NOT NULL CHECK ((JSON_VALID("data") OR "data" IS NULL)), "user_id" integer NOT NULL REFERENCES "auth_user" ("id") DEFERRABLE INITIALLY DEFERRED, "created_at" datetime NOT NULL, "last_used_at" datetime NULL);
CREATE TABLE "django_session" ("session_key" varchar(40) NOT NULL PRIMARY KEY, "session_data" text NOT NULL, "expire_date" datetime NOT NULL);
CREATE TABLE "sessions_app_agentdefinition" ("id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "digest" varchar(64) NOT NULL UNIQUE, "agent_name" varchar(200) NOT NULL, "document" text NOT NULL, "sealed" BLOB NULL, "created_at" datetime NOT NULL);
CREATE TABLE "journal_gap" ("id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "tenant_id" bigint NOT NULL, "after" bigint NOT NULL, "upto" bigint NOT NULL);
CREATE TABLE "pruned" ("session_id" bigint NOT NULL PRIMARY KEY, "through" bigint NOT NULL);
CREATE TABLE "session_tail" ("session_id" bigint NOT NULL PRIMARY KEY, "seq" bigint NOT NULL, "prev" bigint NOT NULL, "fence" integer NOT NULL);
CREATE TABLE "sessions_app_tenant" ("id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "slug" varchar(63) NOT NULL UNIQUE, "title" varchar(200) NOT NULL, "allowed_agents" text NULL CHECK ((JSON_VALID("allowed_agents") OR "allowed_agents" IS NULL)), "created_at" datetime NOT NULL, "suspended_at" datetime NULL, "max_request_bytes" bigint unsigned NULL CHECK ("max_request_bytes" >= 0), "max_sessions" bigint unsigned NULL CHECK ("max_sessions" >= 0), "max_stored_bytes" bigint unsigned NULL CHECK ("max_stored_bytes" >= 0), "max_tokens_per_day" bigint unsigned NULL CHECK ("max_tokens_per_day" >= 0), "max_turns_at_once" bigint unsigned NULL CHECK ("max_turns_at_once" >= 0), "max_turns_per_minute" bigint unsigned NULL CHECK ("max_turns_per_minute" >= 0), "session_retention_days" integer unsigned NULL CHECK ("session_retention_days" >= 0), "new_families_from" bigint NULL);
CREATE TABLE "tenant_counter" ("tenant_id" bigint NOT NULL PRIMARY KEY, "seq" bigint NOT NULL, "era" bigint NOT NULL, "sessions" bigint NOT NULL);
CREATE TABLE "sessions_app_apikey" ("id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "name" varchar(200) NOT NULL, "prefix" varchar(16) NOT NULL, "digest" varchar(64) NOT NULL UNIQUE, "scopes" text NOT NULL CHECK ((JSON_VALID("scopes") OR "scopes" IS NULL)), "allowed_agents" text NULL CHECK ((JSON_VALID("allowed_agents") OR "allowed_agents" IS NULL)), "created_at" datetime NOT NULL, "expires_at" datetime NULL, "revoked_at" datetime NULL, "last_used_at" datetime NULL, "rotated_from_id" bigint NULL REFERENCES "sessions_app_apikey" ("id") DEFERRABLE INITIALLY DEFERRED, "tenant_id" bigint NOT NULL REFERENCES "sessions_app_tenant" ("id") DEFERRABLE INITIALLY DEFERRED, "max_request_bytes" bigint unsigned NULL CHECK ("max_request_bytes" >= 0), "max_sessions" bigint unsigned NULL CHECK ("max_sessions" >= 0), "max_stored_bytes" bigint unsigned NULL CHECK ("max_stored_bytes" >= 0), "max_tokens_per_day" bigint unsigned NULL CHECK ("max_tokens_per_day" >= 0), "max_turns_at_once" bigint unsigned NULL CHECK ("max_turns_at_once" >= 0), "max_turns_per_minute" bigint unsigned NULL CHECK ("max_turns_per_minute" >= 0), "line" bigint NULL, "member_id" integer NULL REFERENCES "auth_user" ("id") DEFERRABLE INITIALLY DEFERRED);
CREATE TABLE "sessions_app_optionvalue" ("id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "name" varchar(200) NOT NULL, "value" text NULL, "sealed" BLOB NULL, "position" integer unsigned NOT NULL CHECK ("position" >= 0), "session_id" bigint NOT NULL REFERENCES "sessions_app_session" ("id") DEFERRABLE INITIALLY DEFERRED, "tenant_id" bigint NOT NULL REFERENCES "sessions_app_tenant" ("id") DEFERRABLE INITIALLY DEFERRED, CONSTRAINT "option_once" UNIQUE ("session_id", "name"), CONSTRAINT "option_plain_or_sealed" CHECK ((("sealed" IS NOT NULL AND "value" IS NULL) OR ("sealed" IS NULL AND "value" IS NOT NULL))));
CREATE TABLE "sessions_app_compaction" ("id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "covers_through" integer unsigned NOT NULL CHECK ("covers_through" >= 0), "summary" text NULL, "created_at" datetime NOT NULL, "session_id" bigint NOT NULL REFERENCES "sessions_app_session" ("id") DEFERRABLE INITIALLY DEFERRED, "tenant_id" bigint NOT NULL REFERENCES "sessions_app_tenant" ("id") DEFERRABLE INITIALLY DEFERRED, CONSTRAINT "compaction_once" UNIQUE ("session_id", "covers_through"));
CREATE TABLE "sessions_app_idempotencyrecord" ("id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "route" varchar(300) NOT NULL, "client_key" varchar(255) NOT NULL, "digest" varchar(64) NOT NULL, "session" varchar(64) NOT NULL, "turn" varchar(64) NOT NULL, "run" integer unsigned NOT NULL CHECK ("run" >= 0), "created_at" datetime NOT NULL, "api_key_id" bigint NOT NULL REFERENCES "sessions_app_apikey" ("id") DEFERRABLE INITIALLY DEFERRED, CONSTRAINT "idempotency_key_once" UNIQUE ("api_key_id", "route", "client_key"));
CREATE TABLE "sessions_app_usagetotal" ("id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "tenant_id" bigint NOT NULL, "key_id" bigint NOT NULL, "measure" varchar(8) NOT NULL, "day" date NOT NULL, "amount" bigint NOT NULL, CONSTRAINT "usage_total_once" UNIQUE ("tenant_id", "measure", "day", "key_id"));
CREATE TABLE "sessions_app_clientpresence" ("connection" varchar(64) NOT NULL PRIMARY KEY, "client" varchar(256) NOT NULL, "life" varchar(64) NOT NULL, "seen_at" datetime NOT NULL, "tenant_id" bigint NOT NULL REFERENCES "sessions_app_tenant" ("id") DEFERRABLE INITIALLY DEFERRED);
CREATE TABLE "sessions_app_deferredmodel" ("id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "model" text NOT NULL, "config" text NULL, "origin" text NULL, "session_id" bigint NOT NULL REFERENCES "sessions_app_session" ("id") DEFERRABLE INITIALLY DEFERRED, "tenant_id" bigint NOT NULL REFERENCES "sessions_app_tenant" ("id") DEFERRABLE INITIALLY DEFERRED);
CREATE TABLE "sessions_app_dispatchrecord" ("id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "tenant_id" bigint NOT NULL, "client" varchar(256) NOT NULL, "life" varchar(64) NOT NULL, "seq" varchar(64) NOT NULL, "digest" varchar(64) NOT NULL, "connection" varchar(64) NOT NULL, "refused" bool NOT NULL, "at" datetime NOT NULL, CONSTRAINT "dispatch_once" UNIQUE ("tenant_id", "client", "life", "seq", "digest"));
CREATE TABLE "sessions_app_pendingmessage" ("id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "kind" varchar(8) NOT NULL, "message_id" varchar(256) NOT NULL, "message" text NOT NULL, "position" integer NOT NULL, "created_at" datetime NOT NULL, "api_key_id" bigint NULL REFERENCES "sessions_app_apikey" ("id") DEFERRABLE INITIALLY DEFERRED, "session_id" bigint NOT NULL REFERENCES "sessions_app_session" ("id") DEFERRABLE INITIALLY DEFERRED, "tenant_id" bigint NOT NULL REFERENCES "sessions_app_tenant" ("id") DEFERRABLE INITIALLY DEFERRED, "files" text NULL, "client" text NULL, "trace" text NULL, CONSTRAINT "pending_message_once" UNIQUE ("session_id", "kind", "message_id"));
CREATE TABLE "sessions_app_agentlisting" ("id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "digest" varchar(64) NOT NULL UNIQUE, "document" text NOT NULL, "published_at" datetime NOT NULL, "seen_at" datetime NOT NULL);
CREATE TABLE "sessions_app_shownlisting" ("tenant_id" bigint NOT NULL PRIMARY KEY REFERENCES "sessions_app_tenant" ("id") DEFERRABLE INITIALLY DEFERRED, "listing_id" bigint NOT NULL REFERENCES "sessions_app_agentlisting" ("id") DEFERRABLE INITIALLY DEFERRED, "agents" text NULL CHECK ((JSON_VALID("agents") OR "agents" IS NULL)));
CREATE TABLE "sessions_app_modeluse" ("id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "tenant_id" bigint NOT NULL, "day" date NOT NULL, "session" varchar(256) NOT NULL, "key_id" bigint NOT NULL, "agent" varchar(200) NOT NULL, "model" varchar(256) NOT NULL, "purpose" varchar(8) NOT NULL, "calls" bigint NOT NULL, "input_tokens" bigint NOT NULL, "output_tokens" bigint NOT NULL, "cache_read_tokens" bigint NOT NULL, "cost_nano" bigint NULL, CONSTRAINT "model_use_once" UNIQUE ("tenant_id", "day", "session", "key_id", "agent", "model", "purpose"));
CREATE TABLE "sessions_app_installationmark" ("name" varchar(64) NOT NULL PRIMARY KEY, "value" text NOT NULL, "updated_at" datetime NOT NULL);
CREATE TABLE "sessions_app_message" ("id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "position" integer unsigned NOT NULL CHECK ("position" >= 0), "role" varchar(16) NOT NULL, "content" text NOT NULL, "tool_call_id" text NULL, "origin" varchar(8) NOT NULL, "run" integer unsigned NOT NULL CHECK ("run" >= 0), "step" integer unsigned NOT NULL CHECK ("step" >= 0), "provider_data" text NULL, "input_tokens" bigint NOT NULL, "output_tokens" bigint NOT NULL, "cut_at" datetime NULL, "created_at" datetime NOT NULL, "session_id" bigint NOT NULL REFERENCES "sessions_app_session" ("id") DEFERRABLE INITIALLY DEFERRED, "tenant_id" bigint NOT NULL, "turn_id" bigint NULL REFERENCES "sessions_app_turn" ("id") DEFERRABLE INITIALLY DEFERRED, "superseded_at" datetime NULL, CONSTRAINT "message_position" UNIQUE ("session_id", "position"));
CREATE TABLE "sessions_app_toolcall" ("id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "call_id" text NOT NULL, "name" text NOT NULL, "arguments" text NOT NULL, "runner" varchar(8) NOT NULL, "state" varchar(8) NOT NULL, "step" integer unsigned NOT NULL CHECK ("step" >= 0), "ordinal" integer unsigned NOT NULL CHECK ("ordinal" >= 0), "idempotent" bool NOT NULL, "failed" bool NOT NULL, "reason" text NOT NULL, "result" text NULL, "stored" bool NOT NULL, "decided_by" varchar(100) NOT NULL, "created_at" datetime NOT NULL, "decided_at" datetime NULL, "started_at" datetime NULL, "finished_at" datetime NULL, "session_id" bigint NOT NULL REFERENCES "sessions_app_session" ("id") DEFERRABLE INITIALLY DEFERRED, "tenant_id" bigint NOT NULL, "client" text NULL, "how" varchar(16) DEFAULT '' NOT NULL, "option" text DEFAULT '' NOT NULL, "outcome" text NULL, "shown" text NULL, "suggestion" text NULL, "title" text DEFAULT '' NOT NULL, "why" varchar(16) DEFAULT '' NOT NULL, "turn_id" bigint NULL REFERENCES "sessions_app_turn" ("id") DEFERRABLE INITIALLY DEFERRED, "edits" text NULL, "preview" text NULL, CONSTRAINT "call_id_once_a_session" UNIQUE ("session_id", "call_id"));
CREATE TABLE "sessions_app_workspacetotal" ("tenant_id" bigint NOT NULL PRIMARY KEY REFERENCES "sessions_app_tenant" ("id") DEFERRABLE INITIALLY DEFERRED, "bytes" bigint NOT NULL, "workspaces" integer NOT NULL);
CREATE TABLE "sessions_app_workspace" ("id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "public_id" varchar(64) NOT NULL UNIQUE, "root" varchar(1024) NOT NULL, "private" bool NOT NULL, "bytes" bigint NOT NULL, "files" bigint NOT NULL, "operations" integer NOT NULL, "revision" bigint NOT NULL, "changed_at" datetime NOT NULL, "counted_at" datetime NULL, "used_at" datetime NOT NULL, "created_at" datetime NOT NULL, "removed_at" datetime NULL, "tenant_id" bigint NOT NULL REFERENCES "sessions_app_tenant" ("id") DEFERRABLE INITIALLY DEFERRED, "template_agent" varchar(200) NULL);
CREATE TABLE "sessions_app_terminalservice" ("service" varchar(64) NOT NULL PRIMARY KEY, "host" varchar(200) NOT NULL, "pid" integer NOT NULL, "seen_at" datetime NOT NULL, "lease_expires_at" datetime NOT NULL, "fault" text NOT NULL);
CREATE TABLE "sessions_app_sessiondiffs" ("id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "diffs" text NOT NULL, "session_id" bigint NOT NULL UNIQUE REFERENCES "sessions_app_session" ("id") DEFERRABLE INITIALLY DEFERRED, "tenant_id" bigint NOT NULL);
CREATE TABLE "sessions_app_fileversion" ("id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "digest" varchar(64) NOT NULL, "content" BLOB NOT NULL, "size" integer NOT NULL, "created_at" datetime NOT NULL, "session_id" bigint NOT NULL REFERENCES "sessions_app_session" ("id") DEFERRABLE INITIALLY DEFERRED, "tenant_id" bigint NOT NULL, CONSTRAINT "file_version_once_a_session" UNIQUE ("session_id", "digest"));
CREATE TABLE "sessions_app_terminalscreen" ("terminal_id" bigint NOT NULL PRIMARY KEY REFERENCES "sessions_app_terminal" ("id") DEFERRABLE INITIALLY DEFERRED, "content" text NOT NULL, "detects" bool NOT NULL, "seq" bigint NOT NULL, "counted" integer DEFAULT 0 NOT NULL);
CREATE TABLE "sessions_app_figuresmark" ("name" varchar(40) NOT NULL PRIMARY KEY, "at" datetime NOT NULL);
CREATE TABLE "sessions_app_serverfigures" ("id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "width" smallint unsigned NOT NULL CHECK ("width" >= 0), "at" datetime NOT NULL, "gauges" text NOT NULL, CONSTRAINT "server_figures_once" UNIQUE ("width", "at"));
CREATE TABLE "sessions_app_turnfigures" ("id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "width" smallint unsigned NOT NULL CHECK ("width" >= 0), "at" datetime NOT NULL, "tenant_id" bigint NOT NULL, "key_id" bigint NOT NULL, "agent" varchar(200) NOT NULL, "turns" bigint NOT NULL, "errors" bigint NOT NULL, "outcomes" text NOT NULL, "causes" text NOT NULL, "first" text NOT NULL, "took" text NOT NULL, CONSTRAINT "turn_figures_once" UNIQUE ("width", "at", "tenant_id", "key_id", "agent"));
CREATE TABLE "sessions_app_usecounted" ("id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "day" date NOT NULL, "tenant_id" bigint NOT NULL, "key_id" bigint NOT NULL, "agent" varchar(200) NOT NULL, "model" varchar(256) NOT NULL, "calls" bigint NOT NULL, "input_tokens" bigint NOT NULL, "output_tokens" bigint NOT NULL, "cache_read_tokens" bigint NOT NULL, "cost_nano" bigint NOT NULL, CONSTRAINT "use_counted_once" UNIQUE ("day", "tenant_id", "key_id", "agent", "model"));
CREATE TABLE "sessions_app_usefigures" ("id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "width" smallint unsigned NOT NULL CHECK ("width" >= 0), "at" datetime NOT NULL, "tenant_id" bigint NOT NULL, "key_id" bigint NOT NULL, "agent" varchar(200) NOT NULL, "model" varchar(256) NOT NULL, "calls" bigint NOT NULL, "input_tokens" bigint NOT NULL, "output_tokens" bigint NOT NULL, "cache_read_tokens" bigint NOT NULL, "cost_nano" bigint NOT NULL, CONSTRAINT "use_figures_once" UNIQUE ("width", "at", "tenant_id", "key_id", "agent", "model"));
CREATE TABLE "sessions_app_invitation" ("id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "role" varchar(16) NOT NULL, "email" varchar(254) NOT NULL, "digest" varchar(64) NOT NULL UNIQUE, "invited_by" varchar(200) NOT NULL, "created_at" datetime NOT NULL, "expires_at" datetime NOT NULL, "accepted_at" datetime NULL, "accepted_by" varchar(200) NOT NULL, "revoked_at" datetime NULL, "tenant_id" bigint NOT NULL REFERENCES "sessions_app_tenant" ("id") DEFERRABLE INITIALLY DEFERRED);
CREATE TABLE "sessions_app_member" ("id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "role" varchar(16) NOT NULL, "created_at" datetime NOT NULL, "tenant_id" bigint NOT NULL REFERENCES "sessions_app_tenant" ("id") DEFERRABLE INITIALLY DEFERRED, "user_id" integer NOT NULL REFERENCES "auth_user" ("id") DEFERRABLE INITIALLY DEFERRED, CONSTRAINT "one_role_of_a_member" UNIQUE ("tenant_id", "user_id"));
CREATE TABLE "sessions_app_staff" ("id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "role" varchar(16) NOT NULL, "reads_transcripts" bool NOT NULL, "limited" bool NOT NULL, "user_id" integer NOT NULL UNIQUE REFERENCES "auth_user" ("id") DEFERRABLE INITIALLY DEFERRED);
CREATE TABLE "sessions_app_staff_tenants" ("id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "staff_id" bigint NOT NULL REFERENCES "sessions_app_staff" ("id") DEFERRABLE INITIALLY DEFERRED, "tenant_id" bigint NOT NULL REFERENCES "sessions_app_tenant" ("id") DEFERRABLE INITIALLY DEFERRED);
CREATE TABLE "sessions_app_audithead" ("chain" bigint NOT NULL PRIMARY KEY, "number" bigint NOT NULL, "hash" varchar(80) NOT NULL, "mac" varchar(80) NOT NULL);
CREATE TABLE "sessions_app_auditkey" ("id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "sealed" BLOB NOT NULL, "created_at" datetime NOT NULL);
CREATE TABLE "sessions_app_auditrecord" ("id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "at" datetime NOT NULL, "actor" varchar(200) NOT NULL, "action" varchar(64) NOT NULL, "target" varchar(300) NOT NULL, "address" varchar(64) NOT NULL, "detail" text NOT NULL, "mac" varchar(80) NULL, "uid" char(32) NULL UNIQUE, "tenant_id" bigint NULL);
CREATE TABLE "sessions_app_auditlink" ("id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "chain" bigint NOT NULL, "number" bigint NOT NULL, "record" bigint NOT NULL UNIQUE, "unsigned" bool NOT NULL, "hash" varchar(80) NOT NULL, CONSTRAINT "one_link_of_a_number" UNIQUE ("chain", "number"));
CREATE TABLE "sessions_app_auditseal" ("id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "chain" bigint NOT NULL, "day" date NOT NULL, "number" bigint NOT NULL, "hash" varchar(80) NOT NULL, "mac" varchar(80) NOT NULL, "pruned" varchar(80) NOT NULL, CONSTRAINT "one_seal_a_day" UNIQUE ("chain", "day"));
CREATE TABLE "sessions_app_accesstoken" ("id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "public_id" varchar(64) NOT NULL UNIQUE, "digest" varchar(64) NOT NULL UNIQUE, "session" bigint NULL, "origin" varchar(300) NOT NULL, "scopes" text NOT NULL CHECK ((JSON_VALID("scopes") OR "scopes" IS NULL)), "created_at" datetime DEFAULT (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW')) NOT NULL, "expires_at" datetime NOT NULL, "revoked_at" datetime NULL, "key_id" bigint NOT NULL REFERENCES "sessions_app_apikey" ("id") DEFERRABLE INITIALLY DEFERRED, "member_id" integer NULL REFERENCES "auth_user" ("id") DEFERRABLE INITIALLY DEFERRED, "tenant_id" bigint NOT NULL REFERENCES "sessions_app_tenant" ("id") DEFERRABLE INITIALLY DEFERRED);
CREATE TABLE "sessions_app_tenantdeletion" ("id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "tenant_id" bigint NOT NULL UNIQUE, "public_id" varchar(64) NOT NULL UNIQUE, "slug" varchar(63) NOT NULL, "requested_by" varchar(200) NOT NULL, "requested_at" datetime DEFAULT (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW')) NOT NULL, "finished_at" datetime NULL, "session" bigint NULL, "counts" text NOT NULL, "digest" varchar(64) NOT NULL, "certificate" text NOT NULL);
CREATE TABLE "sessions_app_webhook" ("id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "public_id" varchar(64) NOT NULL UNIQUE, "url" varchar(2000) NOT NULL, "description" varchar(200) DEFAULT '' NOT NULL, "types" text NOT NULL CHECK ((JSON_VALID("types") OR "types" IS NULL)), "position" bigint NOT NULL, "created_at" datetime DEFAULT (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW')) NOT NULL, "created_by" varchar(200) DEFAULT '' NOT NULL, "disabled_at" datetime NULL, "disabled_reason" varchar(300) DEFAULT '' NOT NULL, "failing_since" datetime NULL, "tenant_id" bigint NOT NULL REFERENCES "sessions_app_tenant" ("id") DEFERRABLE INITIALLY DEFERRED);
CREATE TABLE "sessions_app_webhooksecret" ("id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "sealed" BLOB NOT NULL, "created_at" datetime DEFAULT (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW')) NOT NULL, "expires_at" datetime NULL, "tenant_id" bigint NOT NULL REFERENCES "sessions_app_tenant" ("id") DEFERRABLE INITIALLY DEFERRED, "webhook_id" bigint NOT NULL REFERENCES "sessions_app_webhook" ("id") DEFERRABLE INITIALLY DEFERRED);
CREATE TABLE "sessions_app_webhookdelivery" ("id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "public_id" varchar(64) NOT NULL UNIQUE, "event" varchar(64) NOT NULL, "type" varchar(40) NOT NULL, "body" text NOT NULL, "state" varchar(16) NOT NULL, "attempts" integer unsigned NOT NULL CHECK ("attempts" >= 0), "created_at" datetime DEFAULT (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW')) NOT NULL, "next_at" datetime DEFAULT (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW')) NOT NULL, "until" datetime NOT NULL, "claimed_until" datetime NULL, "last_at" datetime NULL, "status" integer unsigned NULL CHECK ("status" >= 0), "answer" text DEFAULT '' NOT NULL, "took_ms" integer unsigned NULL CHECK ("took_ms" >= 0), "tenant_id" bigint NOT NULL REFERENCES "sessions_app_tenant" ("id") DEFERRABLE INITIALLY DEFERRED, "webhook_id" bigint NOT NULL REFERENCES "sessions_app_webhook" ("id") DEFERRABLE INITIALLY DEFERRED, CONSTRAINT "event_once_a_webhook" UNIQUE ("webhook_id", "event"));
CREATE TABLE "sessions_app_searchtext" ("id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "tenant_id" bigint NOT NULL, "session_id" bigint NOT NULL, "through" integer unsigned NOT NULL CHECK ("through" >= 0), "title" text NULL, "words" text NOT NULL, CONSTRAINT "search_text_once" UNIQUE ("session_id", "through"));
CREATE VIRTUAL TABLE searchtext_words using fts5(words, content='sessions_app_searchtext', content_rowid='id', tokenize='unicode61 remove_diacritics 0');
CREATE TABLE "sessions_app_keyaddress" ("id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "network" varchar(64) NOT NULL, "seen_at" datetime DEFAULT (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW')) NOT NULL, "key_id" bigint NOT NULL REFERENCES "sessions_app_apikey" ("id") DEFERRABLE INITIALLY DEFERRED, "tenant_id" bigint NOT NULL REFERENCES "sessions_app_tenant" ("id") DEFERRABLE INITIALLY DEFERRED, CONSTRAINT "one_row_per_address_of_a_key" UNIQUE ("key_id", "network"));
CREATE TABLE "sessions_app_address" ("id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "uri" varchar(1000) NOT NULL, "kind" varchar(16) NOT NULL, "session_id" bigint NOT NULL REFERENCES "sessions_app_session" ("id") DEFERRABLE INITIALLY DEFERRED, "tenant_id" bigint NOT NULL REFERENCES "sessions_app_tenant" ("id") DEFERRABLE INITIALLY DEFERRED, "family" varchar(8) DEFAULT '0.1' NOT NULL, CONSTRAINT "address_once" UNIQUE ("tenant_id", "uri"));
CREATE TABLE "sessions_app_session" ("id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "public_id" varchar(64) NOT NULL UNIQUE, "agent_name" varchar(200) NOT NULL, "tool_refs" text NULL, "client_tools" text NOT NULL, "created_at" datetime NOT NULL, "modified_at" datetime NOT NULL, "deleted_at" datetime NULL, "created_by_id" bigint NULL REFERENCES "sessions_app_apikey" ("id") DEFERRABLE INITIALLY DEFERRED, "tenant_id" bigint NOT NULL REFERENCES "sessions_app_tenant" ("id") DEFERRABLE INITIALLY DEFERRED, "approval" varchar(8) DEFAULT '' NOT NULL, "archived" bool DEFAULT 0 NOT NULL, "customizations" text NULL, "failures_seen_through" bigint DEFAULT 0 NOT NULL, "read" bool DEFAULT 0 NOT NULL, "title" text NULL, "read_forms" bigint DEFAULT 0 NOT NULL, "directory" text NULL, "modified_hour" integer GENERATED ALWAYS AS (cast(round((julianday(substr("modified_at",1,13) || ':00') - 2440587.5) * 24) as integer)) STORED, "workspace_id" bigint NULL, "chat_read" bool DEFAULT 0 NOT NULL, "chat_read_forms" bigint DEFAULT 0 NOT NULL, "draft" text NULL);
CREATE TABLE "sessions_app_clienthandshake" ("id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "tenant_id" bigint NOT NULL, "client" varchar(256) NOT NULL, "version" varchar(32) NOT NULL, "at" datetime NOT NULL, CONSTRAINT "handshake_once" UNIQUE ("tenant_id", "client"));
CREATE TABLE "sessions_app_auditsink" ("name" varchar(20) NOT NULL PRIMARY KEY, "link" bigint DEFAULT 0 NOT NULL, "failures" integer DEFAULT 0 NOT NULL, "retry_at" datetime NULL, "error" varchar(300) DEFAULT '' NOT NULL, "sent_at" datetime NULL);
CREATE TABLE "sessions_app_form" ("id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "call_id" text NOT NULL, "form_id" varchar(64) NOT NULL, "document" text NOT NULL, "answers" text NOT NULL, "response" varchar(8) NOT NULL, "created_at" datetime NOT NULL, "closed_at" datetime NULL, "session_id" bigint NOT NULL REFERENCES "sessions_app_session" ("id") DEFERRABLE INITIALLY DEFERRED, "tenant_id" bigint NOT NULL REFERENCES "sessions_app_tenant" ("id") DEFERRABLE INITIALLY DEFERRED, "turn_id" bigint NOT NULL REFERENCES "sessions_app_turn" ("id") DEFERRABLE INITIALLY DEFERRED, "place" integer unsigned DEFAULT 0 NOT NULL CHECK ("place" >= 0), CONSTRAINT "form_once_a_session" UNIQUE ("session_id", "form_id"));
CREATE TABLE "sessions_app_usageentry" ("id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "key_id" bigint NOT NULL, "measure" varchar(8) NOT NULL, "day" date NOT NULL, "amount" bigint NOT NULL, "tenant_id" bigint NOT NULL);
CREATE TABLE "sessions_app_turnattempt" ("id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "number" smallint unsigned NOT NULL CHECK ("number" >= 0), "place" integer unsigned NOT NULL CHECK ("place" >= 0), "run" integer unsigned NOT NULL CHECK ("run" >= 0), "key_id" bigint NOT NULL, "error" varchar(64) NOT NULL, "failure" text NULL, "ended_at" datetime NOT NULL, "session_id" bigint NOT NULL, "tenant_id" bigint NOT NULL, "turn_id" bigint NOT NULL, CONSTRAINT "attempt_once_a_turn" UNIQUE ("turn_id", "number"));
CREATE TABLE "sessions_app_terminal" ("id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "public_id" varchar(64) NOT NULL UNIQUE, "uri" varchar(1000) NOT NULL, "claim" text NOT NULL, "claim_session" bigint NULL, "agent" varchar(200) NOT NULL, "line" bigint NOT NULL, "workspace" bigint NULL, "title" text NOT NULL, "cwd" text NOT NULL, "cols" integer NOT NULL, "rows" integer NOT NULL, "state" varchar(16) NOT NULL, "exit_code" integer NULL, "service" varchar(64) NOT NULL, "fence" integer NOT NULL, "requested_at" datetime NOT NULL, "exited_at" datetime NULL, "disposed_at" datetime NULL, "tenant_id" bigint NOT NULL REFERENCES "sessions_app_tenant" ("id") DEFERRABLE INITIALLY DEFERRED, "claim_call" text NULL, "command" text NULL, "network" text NULL, "kept" bool DEFAULT 0 NOT NULL, "trace" text NULL);
CREATE TABLE "sessions_app_sessionclient" ("id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "client" varchar(256) NOT NULL, "name" text NULL, "tools" text NOT NULL, "customizations" text NULL, "joined_at" datetime NOT NULL, "left_at" datetime NULL, "session_id" bigint NOT NULL REFERENCES "sessions_app_session" ("id") DEFERRABLE INITIALLY DEFERRED, "tenant_id" bigint NOT NULL REFERENCES "sessions_app_tenant" ("id") DEFERRABLE INITIALLY DEFERRED, "away_since" datetime NULL, "stays" bool DEFAULT 0 NOT NULL, CONSTRAINT "client_once_a_session" UNIQUE ("session_id", "client"));
CREATE TABLE "sessions_app_agentsofprocess" ("process" varchar(64) NOT NULL PRIMARY KEY, "role" varchar(20) NOT NULL, "host" varchar(200) NOT NULL, "pid" integer NOT NULL, "digest" varchar(64) NOT NULL, "loaded_at" datetime NOT NULL, "tried_at" datetime NOT NULL, "fault" text DEFAULT '' NOT NULL, "seen_at" datetime NOT NULL, "streams" integer DEFAULT 0 NOT NULL);
CREATE TABLE "event" ("tenant_id" bigint NOT NULL, "seq" bigint NOT NULL, "session_id" bigint NOT NULL, "kind" varchar(40) NOT NULL, "data" text NOT NULL, "fence" integer NULL, "at" datetime DEFAULT (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW')) NOT NULL, "partition" smallint DEFAULT 0 NOT NULL, PRIMARY KEY ("tenant_id", "seq"));
CREATE TABLE "event_partition" ("number" smallint NOT NULL PRIMARY KEY, "is_open" bool DEFAULT 1 NOT NULL, "closed_at" datetime NULL, "marked_session" bigint NULL, "marked_at" datetime NULL, "opened_at" datetime DEFAULT (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW')) NOT NULL);
CREATE TABLE "sessions_app_turn" ("id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "public_id" varchar(256) NOT NULL, "format" smallint unsigned NOT NULL CHECK ("format" >= 0), "state" varchar(16) NOT NULL, "stop_reason" varchar(16) NOT NULL, "error" varchar(64) NOT NULL, "run" integer unsigned NOT NULL CHECK ("run" >= 0), "step" integer unsigned NOT NULL CHECK ("step" >= 0), "parts" text NOT NULL, "fence" integer NOT NULL, "worker" varchar(64) NOT NULL, "lease_expires_at" datetime NULL, "takeovers" smallint unsigned NOT NULL CHECK ("takeovers" >= 0), "input_tokens" bigint NOT NULL, "output_tokens" bigint NOT NULL, "cache_read_tokens" bigint NOT NULL, "created_at" datetime NOT NULL, "queued_at" datetime NOT NULL, "started_at" datetime NULL, "ended_at" datetime NULL, "provider_closed_at" datetime NULL, "definition_id" bigint NOT NULL REFERENCES "sessions_app_agentdefinition" ("id") DEFERRABLE INITIALLY DEFERRED, "session_id" bigint NOT NULL REFERENCES "sessions_app_session" ("id") DEFERRABLE INITIALLY DEFERRED, "tenant_id" bigint NOT NULL, "deadline_at" datetime NULL, "api_key_id" bigint NULL REFERENCES "sessions_app_apikey" ("id") DEFERRABLE INITIALLY DEFERRED, "attention" bool DEFAULT 0 NOT NULL, "cut_at" datetime NULL, "said" text NULL, "failure" text NULL, "began" text NULL, "duration_ms" bigint NULL, "client" text NULL, "model" text NULL, "model_named" bool DEFAULT 0 NOT NULL, "attempt" smallint unsigned DEFAULT 1 NOT NULL CHECK ("attempt" >= 0), "chat_modified" text NULL, "resumable" bool DEFAULT 0 NOT NULL, "queue" varchar(40) DEFAULT 'default' NOT NULL, "trace" text NULL, CONSTRAINT "turn_once_a_session" UNIQUE ("session_id", "public_id"));
CREATE TABLE "sessions_app_duesummary" ("id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "asked_at" datetime NOT NULL, "due" bool NOT NULL, "worker" varchar(64) NOT NULL, "attempts" smallint unsigned NOT NULL CHECK ("attempts" >= 0), "rest_until" datetime NULL, "session_id" bigint NOT NULL UNIQUE REFERENCES "sessions_app_session" ("id") DEFERRABLE INITIALLY DEFERRED, "tenant_id" bigint NOT NULL REFERENCES "sessions_app_tenant" ("id") DEFERRABLE INITIALLY DEFERRED, "queue" varchar(40) DEFAULT 'default' NOT NULL);
CREATE TABLE "sessions_app_workerpresence" ("worker" varchar(64) NOT NULL PRIMARY KEY, "host" varchar(200) NOT NULL, "pid" integer NOT NULL, "started_at" datetime NOT NULL, "seen_at" datetime NOT NULL, "stopping" bool NOT NULL, "lease_expires_at" datetime NULL, "queues" text DEFAULT 'default' NOT NULL);
CREATE TABLE "socialaccount_socialapp" ("id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "provider" varchar(30) NOT NULL, "name" varchar(40) NOT NULL, "client_id" varchar(191) NOT NULL, "secret" varchar(191) NOT NULL, "key" varchar(191) NOT NULL, "provider_id" varchar(200) NOT NULL, "settings" text NOT NULL CHECK ((JSON_VALID("settings") OR "settings" IS NULL)));
CREATE TABLE "socialaccount_socialtoken" ("id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "token" text NOT NULL, "token_secret" text NOT NULL, "expires_at" datetime NULL, "account_id" integer NOT NULL REFERENCES "socialaccount_socialaccount" ("id") DEFERRABLE INITIALLY DEFERRED, "app_id" integer NULL REFERENCES "socialaccount_socialapp" ("id") DEFERRABLE INITIALLY DEFERRED);
CREATE TABLE "socialaccount_socialaccount" ("id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "provider" varchar(200) NOT NULL, "uid" varchar(191) NOT NULL, "last_login" datetime NOT NULL, "date_joined" datetime NOT NULL, "user_id" integer NOT NULL REFERENCES "auth_user" ("id") DEFERRABLE INITIALLY DEFERRED, "extra_data" text NOT NULL CHECK ((JSON_VALID("extra_data") OR "extra_data" IS NULL)));
CREATE TABLE "usersessions_usersession" ("id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "created_at" datetime NOT NULL, "ip" char(39) NOT NULL, "last_seen_at" datetime NOT NULL, "session_key" varchar(40) NOT NULL UNIQUE, "user_agent" varchar(200) NOT NULL, "data" text NOT NULL CHECK ((JSON_VALID("data") OR "data" IS NULL)), "user_id" integer NOT NULL REFERENCES "auth_user" ("id") DEFERRABLE INITIALLY DEFERRED);
CREATE UNIQUE INDEX "auth_group_permissions_group_id_permission_id_0cd325b0_uniq" ON "auth_group_permissions" ("group_id", "permission_id");
CREATE INDEX "auth_group_permissions_group_id_b120cbf9" ON "auth_group_permissions" ("group_id");
CREATE INDEX "auth_group_permissions_permission_id_84c5c92e" ON "auth_group_permissions" ("permission_id");
CREATE UNIQUE INDEX "auth_user_groups_user_id_group_id_94350c0c_uniq" ON "auth_user_groups" ("user_id", "group_id");
CREATE INDEX "auth_user_groups_user_id_6a12ed8b" ON "auth_user_groups" ("user_id");
CREATE INDEX "auth_user_groups_group_id_97559544" ON "auth_user_groups" ("group_id");
CREATE UNIQUE INDEX "auth_user_user_permissions_user_id_permission_id_14a6b632_uniq" ON "auth_user_user_permissions" ("user_id", "permission_id");
CREATE INDEX "auth_user_user_permissions_user_id_a95ead1b" ON "auth_user_user_permissions" ("user_id");
CREATE INDEX "auth_user_user_permissions_permission_id_1fbb5f2c" ON "auth_user_user_permissions" ("permission_id");
CREATE INDEX "account_emailconfirmation_email_address_id_5b7f8c58" ON "account_emailconfirmation" ("email_address_id");
CREATE UNIQUE INDEX "account_emailaddress_user_id_email_987c8728_uniq" ON "account_emailaddress" ("user_id", "email");
CREATE INDEX "account_emailaddress_user_id_2c513194" ON "account_emailaddress" ("user_id");
CREATE INDEX "account_emailaddress_email_03be32b2" ON "account_emailaddress" ("email");
CREATE UNIQUE INDEX "unique_primary_email" ON "account_emailaddress" ("user_id", "primary") WHERE "primary";
CREATE INDEX "django_admin_log_content_type_id_c4bce8eb" ON "django_admin_log" ("content_type_id");
CREATE INDEX "django_admin_log_user_id_c564eba6" ON "django_admin_log" ("user_id");
CREATE UNIQUE INDEX "django_content_type_app_label_model_76bd3d3b_uniq" ON "django_content_type" ("app_label", "model");
CREATE UNIQUE INDEX "auth_permission_content_type_id_codename_01ab375a_uniq" ON "auth_permission" ("content_type_id", "codename");
CREATE INDEX "auth_permission_content_type_id_2f476e4b" ON "auth_permission" ("content_type_id");
CREATE INDEX "axes_accessattempt_user_agent_ad89678b" ON "axes_accessattempt" ("user_agent");
CREATE INDEX "axes_accessattempt_ip_address_10922d9c" ON "axes_accessattempt" ("ip_address");
CREATE INDEX "axes_accessattempt_username_3f2d4ca0" ON "axes_accessattempt" ("username");
CREATE UNIQUE INDEX "axes_accessattempt_username_ip_address_user_agent_8ea22282_uniq" ON "axes_accessattempt" ("username", "ip_address", "user_agent");
CREATE INDEX "axes_accessfailurelog_user_agent_ea145dda" ON "axes_accessfailurelog" ("user_agent");
CREATE INDEX "axes_accessfailurelog_ip_address_2e9f5a7f" ON "axes_accessfailurelog" ("ip_address");
CREATE INDEX "axes_accessfailurelog_username_a8b7e8a4" ON "axes_accessfailurelog" ("username");
CREATE INDEX "axes_accesslog_user_agent_0e659004" ON "axes_accesslog" ("user_agent");
CREATE INDEX "axes_accesslog_ip_address_86b417e5" ON "axes_accesslog" ("ip_address");
CREATE INDEX "axes_accesslog_username_df93064b" ON "axes_accesslog" ("username");
CREATE INDEX "mfa_authenticator_user_id_0c3a50c0" ON "mfa_authenticator" ("user_id");
CREATE UNIQUE INDEX "unique_authenticator_type" ON "mfa_authenticator" ("user_id", "type") WHERE "type" IN ('totp', 'recovery_codes');
CREATE INDEX "django_session_expire_date_a5c62663" ON "django_session" ("expire_date");
CREATE INDEX "journal_gap_tenant_id_995f3366" ON "journal_gap" ("tenant_id");
CREATE INDEX "sessions_app_apikey_prefix_e62c71f0" ON "sessions_app_apikey" ("prefix");
CREATE INDEX "sessions_app_apikey_rotated_from_id_5a5b9cef" ON "sessions_app_apikey" ("rotated_from_id");
CREATE INDEX "sessions_app_apikey_tenant_id_70020e3a" ON "sessions_app_apikey" ("tenant_id");
CREATE INDEX "sessions_app_optionvalue_session_id_db2a389b" ON "sessions_app_optionvalue" ("session_id");
CREATE INDEX "sessions_app_optionvalue_tenant_id_ff79ab06" ON "sessions_app_optionvalue" ("tenant_id");
CREATE INDEX "sessions_app_compaction_session_id_2e327771" ON "sessions_app_compaction" ("session_id");
CREATE INDEX "sessions_app_compaction_tenant_id_7aeeb448" ON "sessions_app_compaction" ("tenant_id");
CREATE INDEX "sessions_app_idempotencyrecord_created_at_2c26d3e5" ON "sessions_app_idempotencyrecord" ("created_at");
CREATE INDEX "sessions_app_idempotencyrecord_api_key_id_c07a7bcf" ON "sessions_app_idempotencyrecord" ("api_key_id");
CREATE INDEX "sessions_app_clientpresence_seen_at_c56ac84b" ON "sessions_app_clientpresence" ("seen_at");
CREATE INDEX "sessions_app_clientpresence_tenant_id_f32bd72a" ON "sessions_app_clientpresence" ("tenant_id");
CREATE INDEX "sessions_app_deferredmodel_session_id_4c3d0c58" ON "sessions_app_deferredmodel" ("session_id");
CREATE INDEX "sessions_app_deferredmodel_tenant_id_ad1ba784" ON "sessions_app_deferredmodel" ("tenant_id");
CREATE INDEX "sessions_app_dispatchrecord_at_5fc5ecd5" ON "sessions_app_dispatchrecord" ("at");
CREATE INDEX "connections_of_client" ON "sessions_app_clientpresence" ("tenant_id", "client");
CREATE INDEX "sessions_app_pendingmessage_api_key_id_65c45623" ON "sessions_app_pendingmessage" ("api_key_id");
CREATE INDEX "sessions_app_pendingmessage_session_id_d9b844f7" ON "sessions_app_pendingmessage" ("session_id");
CREATE INDEX "sessions_app_pendingmessage_tenant_id_9fffeaeb" ON "sessions_app_pendingmessage" ("tenant_id");
CREATE UNIQUE INDEX "one_steering_message_a_session" ON "sessions_app_pendingmessage" ("session_id") WHERE "kind" = 'steering';
CREATE INDEX "keys_of_line" ON "sessions_app_apikey" ("line") WHERE "line" IS NOT NULL;
CREATE INDEX "sessions_app_agentlisting_published_at_10c644fa" ON "sessions_app_agentlisting" ("published_at");
CREATE INDEX "model_use_by_day" ON "sessions_app_modeluse" ("day");
CREATE INDEX "keys_revoked" ON "sessions_app_apikey" ("revoked_at") WHERE "revoked_at" IS NOT NULL;
CREATE INDEX "message_of_run" ON "sessions_app_message" ("turn_id", "run");
CREATE INDEX "message_of_system" ON "sessions_app_message" ("session_id", "position") WHERE "role" = 'system';
CREATE INDEX "call_of_turn" ON "sessions_app_toolcall" ("turn_id", "step", "ordinal");
CREATE INDEX "open_calls" ON "sessions_app_toolcall" ("session_id", "step", "ordinal") WHERE "state" IN ('pending', 'granted', 'running', 'review');
CREATE INDEX "workspace_used" ON "sessions_app_workspace" ("used_at") WHERE "removed_at" IS NULL;
CREATE INDEX "workspace_removed" ON "sessions_app_workspace" ("removed_at") WHERE "removed_at" IS NOT NULL;
CREATE UNIQUE INDEX "workspace_root" ON "sessions_app_workspace" ("tenant_id", "root") WHERE "removed_at" IS NULL;
CREATE INDEX "sessions_app_invitation_tenant_id_92fe9b3b" ON "sessions_app_invitation" ("tenant_id");
CREATE INDEX "invitations_by_expiry" ON "sessions_app_invitation" ("expires_at");
CREATE INDEX "sessions_app_member_tenant_id_96f036b7" ON "sessions_app_member" ("tenant_id");
CREATE INDEX "sessions_app_member_user_id_ca846e7b" ON "sessions_app_member" ("user_id");
CREATE UNIQUE INDEX "sessions_app_staff_tenants_staff_id_tenant_id_367ee2bc_uniq" ON "sessions_app_staff_tenants" ("staff_id", "tenant_id");
CREATE INDEX "sessions_app_staff_tenants_staff_id_08c3cb6d" ON "sessions_app_staff_tenants" ("staff_id");
CREATE INDEX "sessions_app_staff_tenants_tenant_id_c8f40db2" ON "sessions_app_staff_tenants" ("tenant_id");
CREATE INDEX "sessions_app_auditrecord_at_e5c0bb99" ON "sessions_app_auditrecord" ("at");
CREATE INDEX "sessions_app_auditrecord_tenant_id_864a087e" ON "sessions_app_auditrecord" ("tenant_id");
CREATE INDEX "audit_of_actor" ON "sessions_app_auditrecord" ("actor", "at" DESC);
CREATE UNIQUE INDEX "one_key_per_member" ON "sessions_app_apikey" ("tenant_id", "member_id") WHERE "member_id" IS NOT NULL;
CREATE INDEX "sessions_app_apikey_member_id_5bca6017" ON "sessions_app_apikey" ("member_id");
CREATE INDEX "sessions_app_accesstoken_expires_at_4a7138c4" ON "sessions_app_accesstoken" ("expires_at");
CREATE INDEX "sessions_app_accesstoken_member_id_b5cc48e7" ON "sessions_app_accesstoken" ("member_id");
CREATE INDEX "tokens_of_key" ON "sessions_app_accesstoken" ("key_id", "expires_at");
CREATE INDEX "deletions_unfinished" ON "sessions_app_tenantdeletion" ("id") WHERE "finished_at" IS NULL;
CREATE INDEX "sessions_app_webhook_tenant_id_f0611e39" ON "sessions_app_webhook" ("tenant_id");
CREATE INDEX "sessions_app_webhooksecret_webhook_id_aec83bf1" ON "sessions_app_webhooksecret" ("webhook_id");
CREATE INDEX "sessions_app_webhookdelivery_tenant_id_cccfc11c" ON "sessions_app_webhookdelivery" ("tenant_id");
CREATE INDEX "deliveries_pending" ON "sessions_app_webhookdelivery" ("next_at") WHERE "state" = 'pending';
CREATE INDEX "deliveries_of_webhook" ON "sessions_app_webhookdelivery" ("webhook_id", "id" DESC);
CREATE INDEX "deliveries_ended" ON "sessions_app_webhookdelivery" ("last_at") WHERE NOT ("state" = 'pending');
CREATE INDEX "search_text_of_tenant" ON "sessions_app_searchtext" ("tenant_id", "id");
CREATE INDEX "sessions_app_keyaddress_seen_at_7d66cd25" ON "sessions_app_keyaddress" ("seen_at");
CREATE INDEX "sessions_app_address_session_id_24e883b3" ON "sessions_app_address" ("session_id");
CREATE INDEX "sessions_app_address_tenant_id_120a5cc1" ON "sessions_app_address" ("tenant_id");
CREATE INDEX "sessions_app_session_created_by_id_28f4ccd6" ON "sessions_app_session" ("created_by_id");
CREATE INDEX "session_list" ON "sessions_app_session" ("tenant_id", "created_at" DESC, "id" DESC) WHERE "deleted_at" IS NULL;
CREATE INDEX "session_deleted" ON "sessions_app_session" ("deleted_at") WHERE "deleted_at" IS NOT NULL;
CREATE INDEX "session_of_agent" ON "sessions_app_session" ("tenant_id", "agent_name", "created_at" DESC, "id" DESC) WHERE "deleted_at" IS NULL;
CREATE INDEX "session_recent" ON "sessions_app_session" ("tenant_id", "modified_hour") WHERE "deleted_at" IS NULL;
CREATE INDEX "session_workspace" ON "sessions_app_session" ("workspace_id") WHERE "workspace_id" IS NOT NULL;
CREATE INDEX "sessions_app_clienthandshake_at_700ac658" ON "sessions_app_clienthandshake" ("at");
CREATE INDEX "sessions_app_form_session_id_b618661d" ON "sessions_app_form" ("session_id");
CREATE INDEX "sessions_app_form_tenant_id_74a6489a" ON "sessions_app_form" ("tenant_id");
CREATE INDEX "sessions_app_form_turn_id_035e74b5" ON "sessions_app_form" ("turn_id");
CREATE INDEX "open_forms" ON "sessions_app_form" ("turn_id") WHERE "response" = '';
CREATE INDEX "audit_of_target" ON "sessions_app_auditrecord" ("target", "at" DESC);
CREATE INDEX "audit_of_action" ON "sessions_app_auditrecord" ("action", "at" DESC, "id" DESC);
CREATE INDEX "model_use_of_session" ON "sessions_app_modeluse" ("session");
CREATE INDEX "session_newest" ON "sessions_app_session" ("created_at" DESC, "id" DESC) WHERE "deleted_at" IS NULL;
CREATE INDEX "session_by_agent" ON "sessions_app_session" ("agent_name", "created_at" DESC, "id" DESC) WHERE "deleted_at" IS NULL;
CREATE INDEX "workspace_of_tenant" ON "sessions_app_workspace" ("tenant_id", "id" DESC);
CREATE INDEX "usage_entries_of_key" ON "sessions_app_usageentry" ("tenant_id", "key_id");
CREATE INDEX "sessions_app_turnattempt_session_id_42b1ecb6" ON "sessions_app_turnattempt" ("session_id");
CREATE INDEX "attempt_ended" ON "sessions_app_turnattempt" ("ended_at");
CREATE UNIQUE INDEX "one_terminal_per_uri" ON "sessions_app_terminal" ("tenant_id", "uri") WHERE "disposed_at" IS NULL;
CREATE INDEX "terminal_live" ON "sessions_app_terminal" ("state", "id") WHERE "state" IN ('requested', 'running');
CREATE INDEX "terminal_of_session" ON "sessions_app_terminal" ("claim_session") WHERE "claim_session" IS NOT NULL;
CREATE INDEX "terminal_exited" ON "sessions_app_terminal" ("exited_at") WHERE "exited_at" IS NOT NULL;
CREATE INDEX "terminal_of_call" ON "sessions_app_terminal" ("id") WHERE "claim_call" IS NOT NULL;
CREATE INDEX "terminal_to_clear" ON "sessions_app_terminal" ("disposed_at") WHERE ("disposed_at" IS NOT NULL AND NOT "kept");
CREATE INDEX "sessions_app_sessionclient_session_id_e08b09ea" ON "sessions_app_sessionclient" ("session_id");
CREATE INDEX "sessions_app_sessionclient_tenant_id_620db456" ON "sessions_app_sessionclient" ("tenant_id");
CREATE INDEX "sessions_of_client" ON "sessions_app_sessionclient" ("tenant_id", "client");
CREATE INDEX "client_grace" ON "sessions_app_sessionclient" ("left_at") WHERE "left_at" IS NOT NULL;
CREATE INDEX "event_of_session" ON "event" ("session_id", "seq");
CREATE INDEX "event_run_start" ON "event" ("session_id", "seq") WHERE "kind" IN ('turn_started', 'turn_resumed');
CREATE UNIQUE INDEX "one_open_partition" ON "event_partition" ("is_open") WHERE "is_open";
CREATE UNIQUE INDEX "one_live_turn_a_session" ON "sessions_app_turn" ("session_id") WHERE "state" IN ('queued', 'running', 'waiting');
CREATE INDEX "turn_of_worker" ON "sessions_app_turn" ("worker") WHERE "state" = 'running';
CREATE INDEX "turn_of_session" ON "sessions_app_turn" ("session_id", "id");
CREATE INDEX "turn_in_work" ON "sessions_app_turn" ("tenant_id", "state", "queued_at") WHERE "state" IN ('queued', 'running');
CREATE INDEX "turn_deadlines_set" ON "sessions_app_turn" ("deadline_at") WHERE ("deadline_at" IS NOT NULL AND "state" IN ('queued', 'running'));
CREATE INDEX "turn_ended" ON "sessions_app_turn" ("ended_at") WHERE "ended_at" IS NOT NULL;
CREATE INDEX "turn_failed" ON "sessions_app_turn" ("tenant_id", "id" DESC) WHERE "state" = 'error';
CREATE INDEX "sessions_app_duesummary_tenant_id_36ca5261" ON "sessions_app_duesummary" ("tenant_id");
CREATE INDEX "summary_due" ON "sessions_app_duesummary" ("asked_at") WHERE "due";
CREATE INDEX "turn_queued_in_pool" ON "sessions_app_turn" ("queue", "tenant_id", "queued_at", "id") WHERE "state" = 'queued';
CREATE UNIQUE INDEX "socialaccount_socialtoken_app_id_account_id_fca4e0ac_uniq" ON "socialaccount_socialtoken" ("app_id", "account_id");
CREATE INDEX "socialaccount_socialtoken_account_id_951f210e" ON "socialaccount_socialtoken" ("account_id");
CREATE INDEX "socialaccount_socialtoken_app_id_636a42d7" ON "socialaccount_socialtoken" ("app_id");
CREATE UNIQUE INDEX "socialaccount_socialaccount_provider_uid_fc810c6e_uniq" ON "socialaccount_socialaccount" ("provider", "uid");
CREATE INDEX "socialaccount_socialaccount_user_id_8146e70c" ON "socialaccount_socialaccount" ("user_id");
CREATE INDEX "usersessions_usersession_user_id_af5e0a6d" ON "usersessions_usersession" ("user_id");
CREATE TRIGGER searchtext_added after insert on sessions_app_searchtext begin insert into searchtext_words(rowid, words) values (new.id, new.words); end;
CREATE TRIGGER searchtext_removed after delete on sessions_app_searchtext begin insert into searchtext_words(searchtext_words, rowid, words) values ('delete', old.id, old.words); end;
