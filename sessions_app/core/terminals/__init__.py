"""Terminals: shells on pseudo-terminals in a tenant's workspaces, which clients watch and type into over AHP.

A face creates and changes terminals in the database and the journal. A terminal service (``service``) claims requested
terminals, runs their shells in sandboxes, appends their output to the journal and follows the journal for input. Nothing else
connects the two, so any web process can serve a terminal of any service.

``types`` values · ``access`` finding · ``availability`` whether there are terminals · ``creating`` · ``changing`` what clients
dispatch · ``disposing`` · ``ending`` · ``listing`` the tenant's list · ``screen`` what a terminal shows · ``state`` snapshots ·
``checkpoints`` stored screens · ``services`` leases and claims · ``live`` a running shell · ``service`` the process ·
``agent_commands`` commands that agents' tools run in terminals.
"""
