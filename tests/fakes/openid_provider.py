"""A scripted OpenID Connect provider on a real socket: discovery, token, userinfo and keys."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

import jwt

CLIENT = "agenthost"
SECRET = "secret of the registration"


class OpenIDProvider:
    """``sign_in`` is what a browser would do there: it returns the callback's query for an authorization request."""

    def __init__(self) -> None:
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                provider._answer(self, "")

            def do_POST(self) -> None:
                provider._answer(self, self.rfile.read(int(self.headers.get("Content-Length", 0))).decode())

            def log_message(self, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.issuer = f"http://127.0.0.1:{self._server.server_port}"
        self._codes: dict[str, dict[str, str]] = {}
        self.claims: dict[str, Any] = {"sub": "ann-at-work", "email": "ann@work.example", "preferred_username": "ann"}
        self.token_changes: dict[str, Any] = {}
        """Claims of the ID token that are other than they should be."""
        self.refused: list[str] = []

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()

    def sign_in(self, location: str) -> dict[str, str]:
        """The person signs in at the address to which this server redirected; returns the query of the callback."""
        asked = {name: values[0] for name, values in parse_qs(urlsplit(location).query).items()}
        code = secrets.token_urlsafe(8)
        self._codes[code] = asked
        return {"code": code, "state": asked["state"]}

    def _answer(self, request: BaseHTTPRequestHandler, body: str) -> None:
        path = urlsplit(request.path).path
        status, content = 200, {}
        if path == "/.well-known/openid-configuration":
            content = {
                "issuer": self.issuer,
                "authorization_endpoint": f"{self.issuer}/authorize",
                "token_endpoint": f"{self.issuer}/token",
                "userinfo_endpoint": f"{self.issuer}/userinfo",
                "jwks_uri": f"{self.issuer}/keys",
                "token_endpoint_auth_methods_supported": ["client_secret_post"],
            }
        elif path == "/token":
            status, content = self._token({name: values[0] for name, values in parse_qs(body).items()})
        elif path == "/userinfo":
            content = self.claims
        else:
            status = 404
        data = json.dumps(content).encode()
        request.send_response(status)
        request.send_header("Content-Type", "application/json")
        request.send_header("Content-Length", str(len(data)))
        request.end_headers()
        request.wfile.write(data)

    def _token(self, sent: dict[str, str]) -> tuple[int, dict[str, Any]]:
        asked = self._codes.pop(sent.get("code", ""), None)
        challenge = (
            base64.urlsafe_b64encode(hashlib.sha256(sent.get("code_verifier", "").encode()).digest()).rstrip(b"=").decode()
        )
        if asked is None:
            self.refused.append("the code is unknown or was used")
        elif sent.get("client_secret") != SECRET:
            self.refused.append("the client's secret is wrong")
        elif asked.get("code_challenge") != challenge:
            self.refused.append("the code verifier does not fit")
        else:
            now = int(time.time())
            token = {"iss": self.issuer, "aud": CLIENT, "sub": self.claims["sub"], "iat": now, "exp": now + 60}
            signed = jwt.encode({**token, **self.token_changes}, "a key that nobody checks: it came from the provider", "HS256")
            return 200, {"access_token": "a", "token_type": "Bearer", "id_token": signed}
        return 400, {"error": "invalid_grant"}
