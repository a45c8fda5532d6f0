"""The look-up of locked packages in the published advisories, against a server that answers as OSV's API does."""

from __future__ import annotations

import datetime as dt
import json
import socket
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from ops import advisories
from ops.environment import Pin

TODAY = dt.date(2026, 11, 20)
PINS = [Pin(name, version, "", frozenset({"server"}), (), ()) for name, version in (("Django", "5.2.1"), ("yarl", "1.20"))]
DETAILS: dict[str, dict[str, Any]] = {
    "GHSA-open": {
        "aliases": ["CVE-2026-1"],
        "affected": [
            {
                "package": {"name": "django"},
                "ranges": [
                    {"type": "GIT", "events": [{"fixed": "abcdef"}]},
                    {"type": "ECOSYSTEM", "events": [{"introduced": "5.2"}, {"fixed": "5.2.9"}]},
                ],
            },
            {"package": {"name": "other"}, "ranges": [{"type": "ECOSYSTEM", "events": [{"fixed": "9"}]}]},
        ],
    },
    "PYSEC-withdrawn": {"withdrawn": "2026-01-01T00:00:00Z", "affected": []},
}


@pytest.fixture
def service() -> Iterator[str]:
    """Knows an open and a withdrawn advisory on Django, none on others."""

    class Service(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            if self.path != "/v1/querybatch":
                return self.answer([])
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            of = {"Django": {"vulns": [{"id": name} for name in DETAILS]}}
            return self.answer({"results": [of.get(query["package"]["name"], {}) for query in asked["queries"]]})

        def do_GET(self) -> None:
            self.answer(DETAILS.get(self.path.removeprefix("/v1/vulns/"), []))

        def answer(self, document: object) -> None:
            body = json.dumps(document).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Service)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


def accepting(**entry: object) -> dict[str, Any]:
    return {"tool": {"agenthost": {"accepted-advisories": [entry]}}}


def test_an_advisory_is_reported_with_its_other_names_and_the_version_that_fixes_it(service: str) -> None:
    assert list(advisories.lines(PINS, {}, TODAY, service)) == [
        "note: 2 packages looked up",
        "Django 5.2.1: CVE-2026-1, GHSA-open; fixed in 5.2.9",
    ]


def test_an_accepted_advisory_is_left_out_until_its_day(service: str) -> None:
    project = accepting(id="CVE-2026-1", until=TODAY, reason="not called")
    assert list(advisories.lines(PINS, project, TODAY, service)) == ["note: 2 packages looked up"]
    later = list(advisories.lines(PINS, project, TODAY + dt.timedelta(days=1), service))
    assert [line.split(":")[0] for line in later] == ["pyproject.toml", "note", "Django 5.2.1"]


@pytest.mark.parametrize("missing", ["id", "until", "reason"])
def test_an_entry_that_lacks_a_fact_is_a_fault(service: str, missing: str) -> None:
    entry = {"id": "CVE-2026-1", "until": TODAY, "reason": "not called"}
    del entry[missing]
    first, *_ = advisories.lines(PINS, accepting(**entry), TODAY, service)
    assert first.startswith("pyproject.toml: accepted-advisories: ")


def test_without_a_network_it_says_so_and_reports_no_fault() -> None:
    with socket.socket() as nobody:
        # Bound, so that nobody else gets it, and not listening.
        nobody.bind(("127.0.0.1", 0))
        (line,) = advisories.lines(PINS, {}, TODAY, f"http://127.0.0.1:{nobody.getsockname()[1]}")
    assert line.startswith("note: not looked up: the advisories cannot be reached from here (")


def test_an_answer_of_another_service_is_no_proof(service: str) -> None:
    (line,) = advisories.lines(PINS, {}, TODAY, f"{service}/other")
    assert "not that of OSV's API" in line
