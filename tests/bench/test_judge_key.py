"""A judge's key: from the environment, to the judge alone, never shown."""

from __future__ import annotations

import http.server
import json
import threading

import pytest

from bench.config.errors import ConfigError
from bench.run.judging import JudgeError, ask
from tests.helpers.judging import judge

SECRET = 's3cret-"0001\\key'


def test_a_key_with_a_line_break_is_sent_without_it(server, monkeypatch):
    monkeypatch.setenv("JUDGE_KEY", " s3cret\n")
    server.start()
    assert ask(judge(base_url=server.url), judge().asked((("user", "hello"),)))
    assert server.asked()[0]["key"] == "Bearer s3cret"


@pytest.mark.parametrize("key", ["s3cr\u00e9t", "s3c\nret", "s3c\x7fret", "\uc5f4\uc1e0"])
def test_a_key_that_cannot_be_sent_is_refused_unseen(command, monkeypatch, key):
    monkeypatch.setenv("JUDGE_KEY", key)
    result = command("judge.base_url=http://127.0.0.1:1/v1", "judge.model=own", "judge.key_env=JUDGE_KEY")
    assert (result.status, result.err) == (
        2, "error: judge.key_env=JUDGE_KEY: the key in this environment variable has a character that is not printable "
        "ASCII; set it again\n")
    with pytest.raises(ConfigError, match="is not printable ASCII"):
        ask(judge(), {})
    judge(base_url=None).check()  # nothing is judged


@pytest.mark.parametrize(("status", "line"), [(200, "not a chat completion"), (401, "HTTP 401"), (302, "HTTP 302")])
def test_a_server_that_echoes_the_key_does_not_show_it(monkeypatch, status, line):
    """Nor does the key follow where it redirects to."""
    monkeypatch.setenv("JUDGE_KEY", SECRET)
    seen = []

    class Echoing(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            seen.append(sent := self.headers["Authorization"])
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(status)
            self.send_header("Location", f"http://localhost:{self.server.server_port}/elsewhere")
            self.end_headers()
            self.wfile.write(f"{'x' * 150} you sent {sent} {json.dumps(sent)}".encode())

        do_GET = do_POST

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Echoing) as served:
        threading.Thread(target=served.serve_forever, daemon=True).start()
        with pytest.raises(JudgeError, match=rf"{line}.*you sent Bearer \(hidden\)") as raised:
            ask(judge(base_url=f"http://127.0.0.1:{served.server_port}/v1"), {})
        served.shutdown()
    assert seen == [f"Bearer {SECRET}"]
    assert "s3cret" not in str(raised.value) and "0001" not in str(raised.value)
