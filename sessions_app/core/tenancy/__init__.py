"""Tenants and what they own or may use: keys, access, agents, quotas, use, the audit. Knows no turn."""
