"""The management API below ``/api/``: what applications manage with a key, beside the sessions of AAP.

Its own address, because AAP's rules bind every path below ``/aap/vN``. It shares AAP's authentication, problem documents, limits
and CORS.
"""
