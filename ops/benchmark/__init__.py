"""Measures the server in its production shape against the floor: the same load straight at a scripted model server."""
