"""Workspaces on disk: trees of files that a tenant's sandboxes write to while the server reads and changes them.

The modules know neither Django nor the domain. `tree.Tree` is the entry point for files; `paths` translates `file:` URIs,
`archive` exports and seeds trees, `search` finds names and lines, and
`watching` reports changes. Every failure is an `errors.FileError`.
"""
