"""A small OpenAI-compatible server, run as a process of its own: python judge_server.py PORT LOG [DIE_AFTER].

It grades by the length of what it is asked, writes a line of LOG for each reply, and after DIE_AFTER replies ends in
the middle of the next one, as a killed process does."""

from __future__ import annotations

import json
import os
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

PORT, LOG = int(sys.argv[1]), sys.argv[2]
DIE_AFTER = int(sys.argv[3]) if len(sys.argv) > 3 else None
replies = 0


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        global replies
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        asked = body["messages"][-1]["content"]
        if DIE_AFTER is not None and replies >= DIE_AFTER:
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b'{"choices": [')
            self.wfile.flush()
            os.kill(os.getpid(), 9)
        replies += 1
        choice = "[[A]]" if "FIRST" in asked.split("Assistant B")[0] else "[[B]]" if "FIRST" in asked else "[[C]]"
        reply = f"I read {len(asked)} characters. Rating: [[{len(asked) % 10 + 1}]] {choice}"
        with open(LOG, "a") as log:
            log.write(json.dumps({"path": self.path, "key": self.headers.get("Authorization"), **body}) + "\n")
        content = json.dumps({"choices": [{"message": {"role": "assistant", "content": reply}}]}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


if __name__ == "__main__":
    server = HTTPServer(("127.0.0.1", PORT), Handler)
    print("listening", flush=True)
    server.serve_forever()
