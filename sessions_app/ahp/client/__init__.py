"""The client side of AHP: ``client`` connects to any host, ``transcript`` shows a session in a terminal.

Free of Django and the core. What differs between versions is a ``version.ClientVersion``.
"""
