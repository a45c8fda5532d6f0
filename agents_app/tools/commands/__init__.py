"""The builtin tool ``run_command``, which runs a shell command in the session's workspace.

``host`` is what the tool needs of its host · ``running`` is the tool · ``excerpt`` keeps the head and the tail of the output.
"""
