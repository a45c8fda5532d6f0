"""AHP 0.9. Its reducers are for clients; the host does not serve this version yet."""
