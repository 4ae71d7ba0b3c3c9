"""A server for the built pages, a browser that reaches nothing else, and who opens what."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from functools import partial
from http.server import ThreadingHTTPServer
from typing import Any
from zipfile import ZipFile

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright
from xdist.scheduler import LoadScopeScheduling

from press import BUILD, HTML, archive
from press.browser import ARGUMENTS, OFFLINE, find
from tests.browser.looking import WIDE
from tests.browser.serving import Quiet


class Visits(LoadScopeScheduling):
    """Give what is opened once, a page, a figure, or what a file's tests share, to one worker.

    xdist sends first what most tests ask for. Its own groups, the mark xdist_group, are lost with
    pytest 9.2, which tells the name of a test in another way.
    """

    def _split_scope(self, nodeid: str) -> str:
        file, _, test = nodeid.partition("::")
        _, parametrized, parameter = test.partition("[")
        return parameter if parametrized else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Visits:
    return Visits(config, log)


BROWSER = pytest.StashKey[Browser]()
REPORTS = BUILD / "reports" / "pages"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Keep of a test that fails a picture of each tab; with TRACE set its steps, too.

    A trace of every test would take half as much time again, and so would pytest-playwright's.
    """
    browser = item.config.stash.get(BROWSER, None)
    traced = browser.contexts if browser and os.environ.get("TRACE") else []
    for context in traced:
        context.tracing.start(screenshots=True, snapshots=True)
    name, kept = re.sub(r"[^\w-]+", "-", item.name), []
    try:
        return (yield)
    except (Exception, pytest.fail.Exception):
        kept = [REPORTS / f"{name}-{i}.zip" for i, _ in enumerate(traced)]
        tabs = [tab for one in browser.contexts for tab in one.pages] if browser else []
        for i, tab in enumerate(tab for tab in tabs if tab.url != "about:blank"):
            tab.screenshot(path=REPORTS / f"{name}-{i}.png")
        item.add_report_section("call", "pictures and traces", f"{REPORTS}/{name}-*")
        raise
    finally:
        for i, context in enumerate(traced):
            context.tracing.stop(path=kept[i] if kept else None)


@pytest.fixture(scope="session")
def site() -> Iterator[str]:
    handler = partial(Quiet, directory=str(HTML))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="session")
def browser(pytestconfig: pytest.Config) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        options = {"executable_path": find(), "args": [*ARGUMENTS, OFFLINE]}
        with playwright.chromium.launch(**options) as browser:
            pytestconfig.stash[BROWSER] = browser
            yield browser


@pytest.fixture(scope="session")
def reader(browser: Browser) -> Iterator[BrowserContext]:
    """Give the profile that tests share: a tab there costs half of what a new profile does.

    One tab stays open, since the process that draws the pages ends with the last.
    """
    with browser.new_context(viewport=WIDE, reduced_motion="reduce") as context:
        context.new_page()
        yield context


@pytest.fixture
def page(reader: BrowserContext, site: str) -> Iterator[Page]:
    """Give a tab that finds nothing stored, and leaves nothing."""
    page = reader.new_page()
    yield page
    page.close()
    kept = {"origin": site, "storageTypes": "local_storage"}
    session = reader.new_cdp_session(reader.pages[0])
    session.send("Storage.clearDataForOrigin", kept)
    session.detach()


@pytest.fixture(scope="session")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Unpack the archive as a reader does, and give its address on the reader's disk."""
    folder = tmp_path_factory.mktemp("archive")
    archive.pack(folder / "book.zip")
    with ZipFile(folder / "book.zip") as packed:
        packed.extractall(folder)
    return (folder / archive.ARCHIVE.stem).as_uri()
