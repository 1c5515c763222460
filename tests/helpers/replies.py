"""What the HTTP servers of the tests share."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any


class Replying(BaseHTTPRequestHandler):
    """Reads JSON, replies, and says nothing on the terminal."""

    def asked(self) -> dict[str, Any]:
        """The body of the request."""
        return json.loads(self.rfile.read(int(self.headers["Content-Length"])))

    def reply(self, content: bytes, status: int = 200, **headers: object):
        """`headers`: by their names, with _ for -."""
        self.send_response(status)
        length = {"Content_Type": "application/json", "Content_Length": len(content)}
        for name, value in {**length, **headers}.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object):
        pass


class Serving(ThreadingHTTPServer):
    """A server in a thread of the test; `url`: where its API begins."""

    def __init__(self, handler):
        super().__init__(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self.server_port}/v1"
        Thread(target=self.serve_forever, daemon=True).start()


def chat_completion(text: str) -> bytes:
    """A reply of /chat/completions."""
    return json.dumps({"choices": [{"message": {"role": "assistant", "content": text}}]}).encode()
