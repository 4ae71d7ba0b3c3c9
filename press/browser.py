"""Find a Chrome or Chromium for the page tests and the editions, and say how to start it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
PLACES = (
    Path("/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"),
    Path("/Applications/Chromium.app/Contents/MacOS/Chromium"),
    Path(os.environ.get("PROGRAMFILES", "")) / "Google/Chrome/Application/chrome.exe",
)
ARGUMENTS = """
    --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
    --disable-component-update --disable-sync --disable-extensions --renderer-process-limit=1
""".split()
# Every name but this machine's own is unknown, so that a page cannot reach another host.
OFFLINE = "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1"


def playwrights_own() -> Path:
    """Say where playwright keeps a browser that it installed itself."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        return Path(playwright.chromium.executable_path)


def find() -> str | None:
    """Return the path of an installed Chrome or Chromium, or None."""
    for name in NAMES:
        if path := shutil.which(name):
            return path
    for place in (*PLACES, playwrights_own()):
        if place.is_file():
            return str(place)
    return None
