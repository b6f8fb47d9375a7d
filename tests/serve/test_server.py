"""The server: traces over HTTP, one clear line for whatever is wrong, and it lives."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import pytest

import headway
from browsing import served
from headway.errors import InputError
from headway.explore.asking import Question, traced
from headway.explore.payload import payload
from headway.serve import app as serving
from headway.serve import limits, protocol
from headway.serve.app import application
from headway.serve.limits import LARGEST
from headway.serve.running import bound

FOLDER = Path(__file__).parents[1] / "folders" / "format-1"
TEXT = "He drives the car"


@pytest.fixture(scope="module")
def translator():
    return headway.load(FOLDER, "cpu")


@pytest.fixture(scope="module")
def address(translator):
    with served(application([translator], waiting=4)) as found:
        yield found


def ask(address: str, path: str, body: Any = None, raw: bytes | None = None, **headers: str) -> tuple[int, bytes]:
    data = raw if raw is not None else None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address + path, data, {"content-type": "application/json"} | headers)
    try:
        with urllib.request.urlopen(request, timeout=3000) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def refused(address: str, path: str, body: Any = None, **more: Any) -> tuple[int, str]:
    status, said = ask(address, path, body, **more)
    told = json.loads(said)
    assert list(told) == ["error"] and "\n" not in told["error"]
    return status, told["error"]


def test_a_trace_comes_as_the_bytes_of_its_file(address, translator):
    status, data = ask(address, "api/trace", {"text": TEXT, "beam": 2})
    assert status == 200 and data == payload(traced(translator, Question(TEXT, beam=2)))
    status, data = ask(address, "api/trace", {"text": TEXT, "second": "Il conduit", "layers": [0], "heads": [1]})
    assert status == 200 and data == payload(traced(translator, Question(TEXT, "Il conduit", (0,), (1,))))


def test_the_model_says_what_it_is_and_tokens_are_spelled(address, translator):
    status, said = ask(address, "api/model")
    [card] = json.loads(said)["models"]
    assert status == 200 and card["family"] == "transformer" and card["takes"] == "target"
    assert card["context"] == translator.limit and card["vocabulary"] == len(translator.target_tokenizer)
    ids = translator.target_tokenizer.encode("Il conduit la")
    assert json.loads(ask(address, "api/next", {"ids": ids})[1]) == {"text": "Il conduit la"}


@pytest.mark.parametrize(
    ("path", "body", "status", "told"),
    [
        ("api/trace", {"text": ""}, 422, "nothing to trace"),
        ("api/trace", {"text": " \n "}, 422, "nothing to trace"),
        ("api/trace", {"text": "car " * 5000}, 422, "takes at most"),
        ("api/trace", {"text": TEXT, "second": "la " * 5000}, 422, "takes at most"),
        ("api/trace", {"text": TEXT, "layers": [7]}, 422, "there is no layer 7"),
        ("api/trace", {"text": TEXT, "model": 3}, 422, "there is no model 3"),
        ("api/trace", {"text": 7}, 422, "text: input should be a valid string"),
        ("api/trace", {"txt": TEXT}, 422, "text: field required"),
        ("api/trace", {"text": TEXT, "more": 1}, 422, "more: extra inputs"),
        ("api/trace", [1], 422, "the request is no JSON object"),
        ("api/next", {"ids": [-1]}, 422, "there is no token -1"),
        ("api/next", {"ids": [10**30]}, 422, "there is no token"),
        ("nowhere", None, 404, "not found"),
        ("api/trace/", {"text": TEXT}, 404, "not found"),
    ],
)
def test_bad_requests_get_one_clear_line(address, path, body, status, told):
    found, line = refused(address, path, body)
    assert found == status and told in line


def test_what_is_no_json_gets_one_clear_line(address):
    for raw in (b"{", b"\xff\xfe", b"", "\ud800".encode("utf-8", "surrogatepass")):
        status, line = refused(address, "api/trace", raw=raw)
        assert status in (400, 422) and "the request is no JSON object" in line, raw


def test_head_is_answered_as_get(address):
    for path in ("", "api/model"):
        with urllib.request.urlopen(f"{address}{path}", timeout=300) as whole:
            told = whole.headers["content-type"], whole.headers["content-length"]
        with urllib.request.urlopen(urllib.request.Request(f"{address}{path}", method="HEAD"), timeout=300) as answer:
            assert answer.status == 200 and answer.read() == b""
            assert (answer.headers["content-type"], answer.headers["content-length"]) == told


def test_every_plane_of_unicode_is_read(address):
    text = "e\u0301 שלום العربية 👩\u200d👧 𠮷 \U000e0041 <script>alert(1)</script> \u202e\u0000"
    status, data = ask(address, "api/trace", {"text": text, "second": text})
    assert status == 200
    size = int.from_bytes(data[:8], "little")
    header = json.loads(json.loads(data[8 : 8 + size])["__metadata__"]["headway.trace"])
    assert "".join(header["tracks"][0]["labels"]).count("<") >= 2
    # JSON can say half of a pair; UTF-8 cannot.
    status, _ = ask(address, "api/trace", raw=b'{"text": "a \\ud800 b"}')
    assert status in (200, 422)
    assert ask(address, "api/model")[0] == 200


def test_a_request_of_ten_megabytes_is_refused_and_the_server_lives(address):
    status, line = refused(address, "api/trace", raw=b'{"text": "' + b"a" * 10_000_000 + b'"}')
    assert status == 413 and line == f"the request is larger than {LARGEST / 1e6:g} MB: shorten the text"
    assert ask(address, "api/trace", {"text": TEXT})[0] == 200


def test_fifty_requests_at_once_are_answered_or_told_to_wait(address):
    with ThreadPoolExecutor(50) as many:
        found = list(many.map(lambda _: ask(address, "api/trace", {"text": TEXT, "beam": 2}), range(50)))
    statuses = [status for status, _ in found]
    assert set(statuses) <= {200, 503} and statuses.count(200) >= 5
    for status, said in found:
        if status == 503:
            assert "busy" in json.loads(said)["error"]
    assert ask(address, "api/trace", {"text": TEXT})[0] == 200


def test_more_than_may_wait_are_told_so(translator, monkeypatch):
    """Of six at once one is worked at and two wait; the others hear of it at once."""
    go = threading.Event()

    def slow(*_: Any) -> bytes:
        go.wait(300)
        return b"done"

    monkeypatch.setattr(serving, "answer", slow)
    with served(application([translator], waiting=2)) as address, ThreadPoolExecutor(6) as many:
        asked = [many.submit(ask, address, "api/trace", {"text": TEXT}) for _ in range(6)]
        refusals = [one.result() for _, one in zip(range(3), as_completed(asked, timeout=240), strict=False)]
        go.set()
        assert [status for status, _ in refusals] == [503] * 3
        assert sorted(one.result()[0] for one in asked) == [200] * 3 + [503] * 3


def test_only_this_machine_is_answered(address):
    assert refused(address, "api/model", host="evil.example") == (421, "this server answers on this machine only")
    assert ask(address, "api/model", host="localhost:80")[0] == 200


def test_what_breaks_inside_is_one_line_and_the_server_lives(translator, monkeypatch):
    def broken(*_: Any) -> bytes:
        raise RuntimeError("a wire came loose")

    monkeypatch.setattr(serving, "answer", broken)
    with served(application([translator])) as address:
        status, line = refused(address, "api/trace", {"text": TEXT})
        assert status == 500 and "failed on this request" in line and "RuntimeError" not in line
        assert ask(address, "api/model")[0] == 200


def raw(address: str, *parts: bytes) -> tuple[int, dict[str, Any]]:
    """The answer to bytes that are no whole request: its status and its JSON."""
    host, port = address.removeprefix("http://").rstrip("/").split(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        for part in parts:
            connection.sendall(part)
        head, _, body = b"".join(iter(lambda: connection.recv(65536), b"")).partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)


def test_a_client_that_sends_nothing_or_half_is_not_waited_for(translator, monkeypatch):
    monkeypatch.setattr(protocol, "HEADER_SECONDS", 0.3)
    monkeypatch.setattr(limits, "BODY_SECONDS", 0.3)
    head = b"POST /api/trace HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 99\r\n"
    with served(application([translator])) as address:
        for parts in ((), (b"GET / HTTP/1.1\r\n",), (head,), (head, b"\r\n", b'{"te')):
            status, told = raw(address, *parts)
            assert status == 408 and "seconds" in told["error"], parts
        assert ask(address, "api/model")[0] == 200


def test_more_connections_than_allowed_and_what_is_no_http_are_told_so(translator, monkeypatch):
    monkeypatch.setattr(protocol, "CONNECTIONS", 3)
    with served(application([translator])) as address:
        assert raw(address, b"\x16\x03\x01\x02\x00\r\n\r\n") == (
            400,
            {"error": "this is no HTTP request that can be read"},
        )
        endless = b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 20_000
        assert raw(address, endless) == (431, {"error": "the headers of a request have at most 65,536 bytes"})
        host, port = address.removeprefix("http://").rstrip("/").split(":")
        with contextlib.ExitStack() as stack:
            for _ in range(3):
                stack.enter_context(socket.create_connection((host, int(port))))
            assert raw(address) == (503, {"error": "too many connections: try again in a moment"})


def test_a_layer_that_is_named_a_thousand_times_is_traced_once(address):
    once = ask(address, "api/trace", {"text": TEXT, "layers": [0], "heads": [1]})
    assert ask(address, "api/trace", {"text": TEXT, "layers": [0] * 500, "heads": [1] * 500}) == once
    assert refused(address, "api/trace", {"text": TEXT, "layers": list(range(1001))})[0] == 422


def test_a_port_in_use_is_one_line():
    with bound(0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match=f"port {port} is in use: choose another, or --port 0"):
            bound(port)
