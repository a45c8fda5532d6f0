"""Django's SQLite backend, adapted to a server that is one process (base.py)."""
