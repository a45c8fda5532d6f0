"""The builtin tools for a workspace's files: read, write, edit, list, search.

``host`` is what the tools need of their host · ``reading``, ``writing``, ``listing`` are the tools · ``edits`` replaces text ·
``differences`` compares two versions · ``naming`` resolves the model's paths.
"""
