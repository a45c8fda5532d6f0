"""Every page of the admin in a real browser, full of hostile texts: nothing runs, nothing is loaded, nothing breaks.

The pages are those of the admin's own list of addresses, so a new one is looked at without a change here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import browser as browsers
from tests.e2e import generators
from tests.e2e import server as servers
from tests.e2e.browser import Browser, Page
from tests.e2e.server import Server
from tests.e2e.test_browsers import SIGN_IN
from tests.fakes.model_server import ModelServer

FILL = """
import json, django
django.setup()
from tests.e2e import hostile_rows
print(json.dumps(hostile_rows.fill()))
"""
WIDTHS = {"desktop": (1280, 900), "phone": (390, 844)}
LOOK = """(() => {
  const end = document.documentElement;
  const wide = [...document.querySelectorAll('body *')].filter(
    (each) => each.getBoundingClientRect().right > end.clientWidth + 1).map((each) => each.outerHTML.slice(0, 160));
  return JSON.stringify({
    owned: window.owned ?? null,
    status: performance.getEntriesByType('navigation')[0].responseStatus,
    wide: end.scrollWidth > end.clientWidth ? wide.slice(0, 3) : [],
  });
})()"""


@dataclass(frozen=True)
class Admin:
    server: Server
    addresses: list[str]
    cookie: tuple[str, str]


@pytest.fixture(scope="module")
def admin(tmp_path_factory: pytest.TempPathFactory, _model_server: ModelServer) -> Iterator[Admin]:
    if browsers.find() is None:
        pytest.skip(browsers.MISSING)
    with servers.running("embedded", tmp_path_factory.mktemp("admin"), _model_server.url) as server:
        name, value = server.manage(code=SIGN_IN).split()
        yield Admin(server, json.loads(server.manage(code=FILL).splitlines()[-1]), (name, value))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = browsers.find()
    if path is None:
        pytest.skip(browsers.MISSING)
    with browsers.running(path) as browser:
        yield browser


@pytest.fixture
def page(browser: Browser, admin: Admin) -> Iterator[Page]:
    with browser.page() as page:
        name, value = admin.cookie
        page.call("Network.setCookie", name=name, value=value, url=admin.server.origin())
        yield page


def sized(page: Page, form: str) -> None:
    width, height = WIDTHS[form]
    page.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=form == "phone")


@pytest.mark.parametrize("form", ["desktop", pytest.param("phone", marks=pytest.mark.slow)])
def test_hostile_texts_run_nothing_load_nothing_and_break_no_page(admin: Admin, page: Page, form: str) -> None:
    sized(page, form)
    faults: list[Any] = []
    for where in admin.addresses:
        page.complaints.clear()
        page.open(admin.server.origin() + where)
        seen = json.loads(page.run(LOOK))
        if seen["owned"] or seen["wide"] or seen["status"] not in (200, 404) or page.complaints:
            expected = seen["status"] == 404 and not seen["owned"] and not seen["wide"]
            if not expected:
                faults.append((where, seen, page.complaints[:2]))
    assert faults == [], json.dumps(faults, indent=1)
    own = admin.server.origin()
    assert [asked for asked in page.asked if not asked.startswith((f"{own}/", "data:"))] == []


@pytest.mark.slow
@pytest.mark.parametrize(("form", "scheme"), [("desktop", "light"), ("phone", "light"), ("desktop", "dark")])
def test_no_page_has_a_serious_barrier(admin: Admin, page: Page, tmp_path: Path, form: str, scheme: str) -> None:
    axe = generators.axe(tmp_path)
    sized(page, form)
    page.call("Page.setBypassCSP", enabled=True)
    page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    faults: list[Any] = []
    for where in admin.addresses:
        page.open(admin.server.origin() + where)
        if page.run("document.contentType") == "text/plain":
            # A message that does not exist.
            continue
        page.run(f"{axe};1")
        found = page.run(
            "axe.run(document, {resultTypes: ['violations']}).then(result => JSON.stringify(result.violations"
            ".filter(each => ['serious', 'critical'].includes(each.impact))"
            ".map(each => [each.id, each.nodes.length, each.nodes[0].html.slice(0, 200)])))"
        )
        if json.loads(found):
            faults.append((where, json.loads(found)))
    assert faults == [], json.dumps(faults, indent=1)
