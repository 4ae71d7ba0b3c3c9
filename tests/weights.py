"""What a page costs before a reader can use it: bytes, requests and seconds, on a slow line.

`python -m tests.weights [folder of pages ...]` opens the first page, the heaviest chapters, and the
heaviest lab and audit of each folder in the tests' browser, on a phone, and does not scroll. The
server answers as a static host does: compressed, over connections that stay open.
"""

from __future__ import annotations

import gzip
import statistics
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from itertools import product
from pathlib import Path
from typing import NamedTuple

from playwright.sync_api import Browser, sync_playwright
from tqdm import tqdm

from press import HTML
from press.browser import ARGUMENTS, OFFLINE, find
from tests.browser.looking import PHONE

BYTES_A_SECOND = 1_600_000 / 8
LATENCY = 150  # milliseconds
SLOWER = 4  # a quarter of this machine's speed
ROUNDS = 3
QUIET = 3  # seconds without a long task, after which a page counts as settled
PACKED = (".html", ".css", ".js", ".svg", ".json")

# The page's own thread is busy in tasks of more than 50 ms: then a tap is not answered at once.
WATCH = """
  window.busyUntil = 0;
  new PerformanceObserver((list) => {
    for (const task of list.getEntries()) busyUntil = task.startTime + task.duration;
  }).observe({ type: "longtask", buffered: true });
"""
SETTLED = f"""() => document.readyState === "complete"
  && performance.now() - Math.max(busyUntil, performance.timing.loadEventEnd
    - performance.timeOrigin) > {1000 * QUIET}"""
# Usable: drawn, scripts run (which wait for the style sheets), and the thread free.
TIMES = """() => {
  const painted = performance.getEntriesByName("first-contentful-paint")[0].startTime;
  const run = performance.getEntriesByType("navigation")[0].domContentLoadedEventEnd;
  return [painted, Math.max(painted, run, busyUntil)];
}"""


class Cost(NamedTuple):
    """What one visit took."""

    bytes: float
    requests: float
    painted: float
    usable: float


class Host(SimpleHTTPRequestHandler):
    """A static host: HTTP/1.1, and text compressed."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path = Path(self.translate_path(self.path))
        if not path.is_file():
            self.send_error(404)
            return
        packed = path.suffix in PACKED
        body = content(path, packed)
        self.send_response(200)
        self.send_header("Content-Type", self.guess_type(path))
        self.send_header("Content-Length", str(len(body)))
        if packed:
            self.send_header("Content-Encoding", "gzip")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        pass


@cache
def content(path: Path, packed: bool) -> bytes:
    return gzip.compress(path.read_bytes()) if packed else path.read_bytes()


@contextmanager
def serve(folder: Path) -> Iterator[str]:
    handler = partial(Host, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def chosen(folder: Path) -> list[str]:
    """Name a few pages of each kind, by what they weigh themselves."""
    few = ["book/index.html", "book/errata.html"]
    for kind, many in (("chapters", 4), ("labs", 1), ("audits", 1)):
        pages = sorted((folder / kind).glob("*.html"), key=lambda page: -page.stat().st_size)
        few += [page.relative_to(folder).as_posix() for page in pages[:many]]
    return few


def visit(browser: Browser, address: str) -> Cost:
    """Open a page as somebody does who was never here, and wait until it has settled."""
    context = browser.new_context(viewport=PHONE)
    page = context.new_page()
    page.set_default_timeout(120_000)
    page.add_init_script(WATCH)
    session = context.new_cdp_session(page)
    line = {"downloadThroughput": BYTES_A_SECOND, "uploadThroughput": BYTES_A_SECOND}
    session.send("Network.enable")
    session.send("Network.emulateNetworkConditions", {"offline": False, "latency": LATENCY, **line})
    session.send("Emulation.setCPUThrottlingRate", {"rate": SLOWER})
    # An address that holds its data is no request.
    asked, received = set[str](), dict[str, float]()
    session.on(
        "Network.requestWillBeSent",
        lambda e: asked.add(e["requestId"]) if e["request"]["url"].startswith("http") else None,
    )
    session.on(
        "Network.loadingFinished",
        lambda e: received.update({e["requestId"]: e["encodedDataLength"]}),
    )
    page.goto(address)
    page.wait_for_function(SETTLED, polling=250)
    painted, usable = page.evaluate(TIMES)
    context.close()
    sizes = [size for name, size in received.items() if name in asked]
    return Cost(sum(sizes), len(sizes), painted / 1000, usable / 1000)


def main() -> None:
    folders = [Path(name).resolve() for name in sys.argv[1:]] or [HTML]
    print(f"{'':<58} {'kB':>8} {'requests':>9} {'painted, s':>11} {'usable, s':>10}")
    with sync_playwright() as playwright:
        options = {"executable_path": find(), "args": [*ARGUMENTS, OFFLINE]}
        with playwright.chromium.launch(**options) as browser:
            for name in tqdm(chosen(folders[-1]), file=sys.stderr, leave=False):
                visits: dict[Path, list[Cost]] = {folder: [] for folder in folders}
                # In turns, so that what else the machine does meets all alike.
                for _, folder in product(range(ROUNDS), folders):
                    with serve(folder) as site:
                        visits[folder].append(visit(browser, f"{site}/{name}"))
                for folder in folders:
                    cost = Cost(*map(statistics.median, zip(*visits[folder], strict=True)))
                    where = f"{folder.parent.name}/{folder.name}/"
                    tqdm.write(
                        f"{name:<44} {where if len(folders) > 1 else '':<13.13} "
                        f"{cost.bytes / 1000:>8.0f} {cost.requests:>9.0f} "
                        f"{cost.painted:>11.1f} {cost.usable:>10.1f}"
                    )


if __name__ == "__main__":
    main()
