"""Terminal chat client for any server that speaks AAP version 3.

It imports neither the server's code nor Django.
"""
