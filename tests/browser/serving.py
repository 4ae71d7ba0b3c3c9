"""The server of the built pages, and of what tests write beside them."""

from __future__ import annotations

from http.server import SimpleHTTPRequestHandler
from io import BytesIO
from typing import IO, ClassVar
from urllib.parse import urlsplit


class Quiet(SimpleHTTPRequestHandler):
    """A file server that keeps its log to itself, of pages that do not change meanwhile."""

    # What has no file, by its path. A page that a test answers for by a route has no cache.
    written: ClassVar[dict[str, str]] = {}

    def log_message(self, *arguments: object) -> None:
        pass

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "max-age=3600")
        super().end_headers()

    def send_head(self) -> IO[bytes] | None:
        path = urlsplit(self.path).path
        if path not in self.written:
            return super().send_head()
        content = self.written[path].encode()
        self.send_response(200)
        self.send_header("Content-Type", self.guess_type(path))
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        return BytesIO(content)
