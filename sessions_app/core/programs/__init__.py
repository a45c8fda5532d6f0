"""MCP servers that are started as programs, in sandboxes.

``launcher`` starts them for ``agents_app.mcp`` · ``private`` makes the directories of those that get no workspace.
"""
