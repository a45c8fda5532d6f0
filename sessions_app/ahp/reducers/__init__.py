"""How actions change states, version by version: the one definition that host and clients share. See ``v0_1``."""
