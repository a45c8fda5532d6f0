"""AHP 0.9 on the wire: a type for every definition that this host uses.

What is the same in 0.1 is imported from there. ``enumerations`` words · ``messages`` · ``tools`` calls and results ·
``questions`` · ``config`` · ``customizations`` · ``resources`` sign-in · ``terminals`` · ``chat`` and ``state`` states ·
``chat_actions``, ``session_actions``, ``actions`` · ``envelopes`` how they are sent: ``ACTION``, ``ENVELOPE``, ``TYPES``,
``FROM_CLIENTS`` · ``commands`` ``COMMANDS`` and ``NOTICES`` · ``notifications`` · ``errors`` ``Code`` and data of errors.
"""
