"""What AHP 1.0 adds to 0.9 on the wire; all else is in ``v0_9.wire``.

``chat`` background work and what chats and lists have more · ``actions`` · ``envelopes`` · ``commands``.
"""
