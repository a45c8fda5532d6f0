"""What travels over an AHP connection, version by version. Pure: nothing here knows Django, the core or a socket.

``shapes``   ``Shape(declaration)``: ``read(value)`` what a peer sent, ``faults(value)`` of what the host sends
``uris``     addresses a client may choose
``v0_1``     the declarations of AHP 0.1

Reading a command::

    command = commands.COMMANDS.get(request.method)          # None: method_not_found()
    try:
        params = command.params.read({} if request.params is None and command.bare else request.params)
    except Misfit as misfit:
        raise jsonrpc.invalid_params(misfit) from misfit

What ``read`` answers has no nulls where a member is optional, and whole numbers are ``int``; members nobody knows are still in
it. A dispatched action goes three ways: as it came into the echo (R82), through ``envelopes.ACTION.read`` into the checks, the
reducers and the core.

What a database cannot hold (U+0000, half of a surrogate pair, a thousand levels) is no question of the protocol's shapes: ask
``sessions_app.core.base.content.unstorable`` before storing.
"""
