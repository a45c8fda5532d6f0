"""A chat in the terminal with any server that speaks AAP version 3.

A client: it imports nothing of the server, and needs no Django.
"""
