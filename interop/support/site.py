"""Real input: the toolchain's HTML documentation, served on loopback and read by a second,
independent crawler (Python's parser, an exact set)."""

from __future__ import annotations

import subprocess
import threading
from collections import Counter, deque
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urldefrag, urljoin, urlsplit

# Tens of thousands of pages of CPU intrinsics and source listings, which would turn two
# minutes into twenty. Links to them are dead here, as links on real sites are.
LEFT_OUT = ("core", "src")
START = "/std/index.html"
# What stands in a request as it stands in a link; all else is percent-encoded, as browsers do.
KEPT = "!$%&'()*+,-./:;=?@[]^_`{|}~"


class Site:
    """A tree of HTML pages, served by a thread of this process that counts the requests."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._lock = threading.Lock()
        self._requests: Counter[str] = Counter()
        self._server = _Server(("127.0.0.1", 0), partial(_Handler, site=self))
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self.origin = f"http://127.0.0.1:{self._server.server_port}"
        self.start = self.origin + START
        # What links lead to, path and query: that which is a page, and that which is dead.
        self.pages: set[str] = set()
        self.dead: set[str] = set()
        # Every link of every page, absolute and with its fragment, in the order of reading.
        self.hrefs: list[str] = []

    @classmethod
    def of_toolchain(cls) -> Site:
        sysroot = subprocess.run(
            ["rustc", "--print", "sysroot"], capture_output=True, text=True, check=True, timeout=60
        ).stdout.strip()
        root = Path(sysroot) / "share" / "doc" / "rust" / "html"
        assert (root / START[1:]).is_file(), (
            f"the toolchain's HTML documentation is missing: expected {root}{START}; "
            "`rustup component add rust-docs` brings it"
        )
        return cls(root)

    def __enter__(self) -> Site:
        self._thread.start()
        self._crawl()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def take_requests(self) -> Counter[str]:
        """How often each page was asked for since this was last called."""
        with self._lock:
            taken, self._requests = self._requests, Counter()
        return taken

    def count(self, path: str) -> None:
        with self._lock:
            self._requests[path] += 1

    def file(self, target: str) -> Path | None:
        """The file of a path, with or without a query; `None` where a link is dead."""
        path = urlsplit(target).path
        parts = [part for part in unquote(path).split("/") if part]
        if not parts or parts[0] in LEFT_OUT or ".." in parts:
            return None
        file = self.root.joinpath(*parts)
        if file.is_file():
            return file
        index = file / "index.html"
        return index if path.endswith("/") and index.is_file() else None

    def _crawl(self) -> None:
        """Finds what is reachable, from the files and not through the server."""
        waiting, known = deque([START]), {START}
        while waiting:
            path = waiting.popleft()
            file = self.file(path)
            if file is None:
                self.dead.add(path)
                continue
            self.pages.add(path)
            if file.suffix != ".html":
                continue
            for href in _hrefs(file.read_text(encoding="utf-8")):
                try:
                    link = urljoin(self.origin + path, href)
                except ValueError:
                    continue
                self.hrefs.append(link)
                url = urldefrag(link).url
                target = quote(url.removeprefix(self.origin), safe=KEPT)
                if target.startswith("/") and target not in known:
                    known.add(target)
                    waiting.append(target)


class _Handler(SimpleHTTPRequestHandler):
    # Keeps connections open, as real servers do.
    protocol_version = "HTTP/1.1"
    # Or the head and the body of an answer wait for each other, 40 ms for every page.
    disable_nagle_algorithm = True

    def __init__(self, *arguments: Any, site: Site) -> None:
        self._site = site
        super().__init__(*arguments, directory=str(site.root))

    def do_GET(self) -> None:
        self._site.count(self.path)
        super().do_GET()

    def send_head(self) -> Any:
        if self._site.file(self.path) is None:
            self.send_error(404)
            return None
        return super().send_head()

    def log_message(self, *_: object) -> None:
        """Says nothing: tens of thousands of requests would drown the results."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # All workers connect at the same moment.
    request_queue_size = 128


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.hrefs: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            href = dict(attrs).get("href")
            if href is not None:
                self.hrefs.append(href.strip())


def _hrefs(page: str) -> list[str]:
    parser = _Links()
    parser.feed(page)
    parser.close()
    return parser.hrefs
