"""AHP 1.0: 0.9 with additions. Its reducers are for clients; the host does not serve this version yet."""
