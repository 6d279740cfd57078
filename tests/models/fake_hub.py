"""A hub for tests: the parts of the Hugging Face Hub's HTTP API that the official client uses, on localhost."""

from __future__ import annotations

import hashlib
import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"
TOKEN = "hf_right"

#: Larger files are "LFS": redirected to another path and named by sha256, as on the Hub.
LFS_FROM = 10_000


@dataclass
class FakeHub:
    """Serves one repository.

    Attributes:
        files: Name to content.
        api_status: Answer of the API in place of 200.
        gated: Files want a token.
        cut: Name to the number of body bytes after which the connection breaks, once for each entry.
        spoiled: Name to how often a body is served with one byte changed.
        stall_after: Name to the number of bytes after which the body hangs.
        claimed: Name to a size that the API names in place of the true one.
        requests: "METHOD path range" of everything asked.
    """

    repo: str = "owner/tiny"
    files: dict[str, bytes] = field(default_factory=dict)
    api_status: int = 200
    error_code: str = ""
    gated: bool = False
    cut: dict[str, list[int]] = field(default_factory=dict)
    spoiled: dict[str, int] = field(default_factory=dict)
    stall_after: dict[str, int] = field(default_factory=dict)
    claimed: dict[str, int] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)

    def __enter__(self):
        hub = self

        class Handler(_Handler):
            def __init__(self, *arguments):
                self.hub = hub
                super().__init__(*arguments)

        self.stalled = threading.Event()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.stalled.set()
        self.server.shutdown()
        self.server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    def etag(self, name: str) -> str:
        content = self.files[name]
        if len(content) >= LFS_FROM:
            return hashlib.sha256(content).hexdigest()
        return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()

    def asked(self, part: str) -> list[str]:
        return [request for request in self.requests if part in request]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: FakeHub

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        hub, path = self.hub, urlsplit(self.path).path
        hub.requests.append(f"{self.command} {path} {self.headers.get('Range', '')}".strip())
        if path.startswith("/api/models/"):
            self._api(path)
        elif path.startswith("/cdn/"):
            self._body(path.removeprefix("/cdn/"))
        elif path.startswith(f"/{hub.repo}/resolve/"):
            self._resolve(path.rsplit("/", 1)[1])
        else:
            self._fail(404, "RepoNotFound")

    def _api(self, path: str) -> None:
        hub = self.hub
        if hub.api_status != 200:
            return self._fail(hub.api_status, hub.error_code)
        prefix = f"/api/models/{hub.repo}"
        if not path.startswith(prefix):
            return self._fail(401, "")  # as the Hub answers for what does not exist
        if "/revision/" in path and path.rsplit("/", 1)[1] not in ("main", COMMIT):
            return self._fail(404, "RevisionNotFound")
        entries = [self._entry(name) for name in hub.files]
        if "/tree/" in path:
            return self._json(entries)
        return self._json({"id": hub.repo, "modelId": hub.repo, "sha": COMMIT, "siblings": entries, "tags": []})

    def _entry(self, name: str) -> dict[str, object]:
        """A file as both the tree and the repository's description list it, with the key names of either."""
        content, etag = self.hub.files[name], self.hub.etag(name)
        entry = {"type": "file", "path": name, "rfilename": name, "oid": etag, "blobId": etag}
        entry["size"] = self.hub.claimed.get(name, len(content))
        if len(content) >= LFS_FROM:
            entry["lfs"] = {"sha256": etag, "oid": etag, "size": len(content), "pointerSize": 130}
        return entry

    def _resolve(self, name: str) -> None:
        hub = self.hub
        if hub.gated and self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self._fail(401, "GatedRepo")
        if name not in hub.files:
            return self._fail(404, "EntryNotFound")
        if len(hub.files[name]) < LFS_FROM:
            return self._body(name)
        self.send_response(302)
        self.send_header("Location", f"{hub.url}/cdn/{name}")
        self.send_header("X-Linked-Etag", f'"{hub.etag(name)}"')
        self.send_header("X-Linked-Size", str(len(hub.files[name])))
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _body(self, name: str) -> None:
        hub, content = self.hub, self.hub.files[name]
        start = 0
        if wanted := self.headers.get("Range"):
            start = int(wanted.removeprefix("bytes=").split("-")[0])
        if self.command == "GET" and hub.spoiled.get(name, 0) > 0:
            hub.spoiled[name] -= 1
            content = bytes([content[0] ^ 1]) + content[1:]
        self.send_response(206 if start else 200)
        self.send_header("ETag", f'"{hub.etag(name)}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("Content-Length", str(len(content) - start))
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.end_headers()
        if self.command == "HEAD":
            return
        if hub.cut.get(name):
            self.wfile.write(content[start : hub.cut[name].pop(0)])
            self.close_connection = True
        elif name in hub.stall_after:
            self.wfile.write(content[start : hub.stall_after[name]])
            self.wfile.flush()
            hub.stalled.wait(60)
        else:
            self.wfile.write(content[start:])

    def _json(self, value) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _fail(self, status: int, code: str) -> None:
        body = b'{"error":"refused"}'
        self.send_response(status)
        if code:
            self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
