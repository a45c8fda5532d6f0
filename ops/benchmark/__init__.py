"""Benchmark: the server in its production shape, compared with the floor, the same load sent to a scripted model server."""
