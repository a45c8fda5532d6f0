"""The OpenAPI 3.1 documents of the HTTP API, generated on first use; no other request loads the generator."""
