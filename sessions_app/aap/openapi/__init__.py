"""The HTTP API, described in OpenAPI 3.1: made when somebody asks for it, never on a request's way."""
