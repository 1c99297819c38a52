"""A server on this computer that gives files in the ways that servers do."""

import hashlib
import re
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from lzero.data.sources import Download


class Server(ThreadingHTTPServer):
    """Gives `files` by name; the folder in the address says how.

    `good` resumes, `plain` ignores ranges, `cut` promises all and gives half, `silent` does not say how much comes,
    `wrong` gives other bytes, anything else is not found.
    """

    def __init__(self, files):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files = files
        self.asked = []

    def address(self, way, file):
        return f"http://127.0.0.1:{self.server_port}/{way}/{file}"


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        _, way, file = self.path.split("/")
        wanted = self.headers.get("Range")
        self.server.asked.append((way, file, wanted))
        if way not in ("good", "plain", "cut", "silent", "wrong") or file not in self.server.files:
            self.send_error(404)
            return
        data = self.server.files[file]
        start = int(re.fullmatch(r"bytes=(\d+)-", wanted)[1]) if wanted and way == "good" else 0
        if start >= len(data):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        if way != "silent":
            self.send_header("Content-Length", str(len(data) - start))
        self.end_headers()
        self.wfile.write({"cut": data[: len(data) // 2], "wrong": bytes(len(data))}.get(way, data[start:]))


@contextmanager
def serving(files):
    """A server in a thread, for as long as the block lasts."""
    with Server(files) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def wanted(server, *ways, file="file", algorithm="sha256"):
    """A file to be had in these ways in turn."""
    digest = hashlib.new(algorithm, server.files[file]).hexdigest()
    return Download(file, tuple(server.address(way, file) for way in ways), algorithm, digest)
