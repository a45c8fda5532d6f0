"""Tenants and their keys, access rights, agents, quotas, usage and audit records. Does not know turns."""
