"""AHP 0.1 on the wire: a type for every definition of its schemas, as corrected by the rules' section A.

``enumerations`` words and status bits · ``messages`` user messages, attachments, file edits · ``tools`` definitions, calls,
results · ``questions`` elicitation · ``config`` schemas and values · ``terminals`` · ``state`` root, session, snapshot ·
``actions`` all 53 · ``envelopes`` how they travel: ``ACTION``, ``ENVELOPE``, ``TYPES``, ``FROM_CLIENTS``, ``resource`` ·
``commands`` ``COMMANDS`` (method -> shapes of params and result) and ``NOTICES`` (``dispatchAction``, ``unsubscribe``) ·
``notifications`` ``NOTIFICATION`` · ``errors`` ``Code`` and errors with data.
"""
