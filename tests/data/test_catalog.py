import gzip
import hashlib
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from headway.data import catalog
from headway.data.catalog import FILES, File, fetch, find, find_all
from headway.errors import InputError

CONTENT = b"a small data set\n" * 20_000


class Server(BaseHTTPRequestHandler):
    """/whole gives the content; /cut says its length and hangs up half-way; all else is not there."""

    def do_GET(self) -> None:
        if self.path not in ("/whole", "/cut"):
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(CONTENT)))
        self.end_headers()
        self.wfile.write(CONTENT if self.path == "/whole" else CONTENT[: len(CONTENT) // 2])

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine").mkdir()
    monkeypatch.setenv("HEADWAY_DATA", str(tmp_path / "mine"))
    monkeypatch.setenv("HEADWAY_CACHE", str(tmp_path / "cache"))


def entry(url: str) -> File:
    return File("set/small.txt", url, hashlib.sha256(CONTENT).hexdigest())


def put(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x")
    return path


def test_find_looks_in_the_users_folder_then_in_the_cache(tmp_path: Path) -> None:
    cached = put(tmp_path / "cache" / "data" / "tatoeba" / "fra-eng.zip")
    assert find("tatoeba/fra-eng.zip") == cached
    mine = put(tmp_path / "mine" / "tatoeba" / "fra-eng.zip")
    assert find("tatoeba/fra-eng.zip") == mine


def test_a_file_and_its_gz_stand_for_each_other(tmp_path: Path) -> None:
    packed = put(tmp_path / "mine" / "multi30k" / "tok" / "val.lc.norm.tok.en.gz")
    assert find("multi30k/tok/val.lc.norm.tok.en") == find("multi30k/tok/val.lc.norm.tok.en.gz") == packed
    plain = put(tmp_path / "mine" / "own.txt")
    assert find("own.txt.gz") == plain


def test_the_network_is_not_touched_unless_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog.urllib.request, "urlopen", lambda *_, **__: pytest.fail("contacted the network"))
    with pytest.raises(InputError, match=r"set HEADWAY_DATA to a folder that has it, or pass --download .*raw"):
        find("multi30k/tok/val.lc.norm.tok.en.gz")


def test_a_folders_name_stands_for_all_its_files(tmp_path: Path) -> None:
    known = sorted(name for name in FILES if name.startswith("novels/core/"))
    cached = [put(tmp_path / "cache" / "data" / name) for name in known]
    assert find_all("novels/core") == find_all("novels/core/") == cached and len(cached) == 18
    assert find_all("novels/core/Doyle_Hound_1902.txt") == [tmp_path / "cache/data/novels/core/Doyle_Hound_1902.txt"]
    mine = put(tmp_path / "mine" / "novels" / "core" / "own.txt").parent
    assert find_all("novels/core") == [mine]
    cached[3].unlink()
    mine.rename(tmp_path / "elsewhere")
    with pytest.raises(InputError, match=rf"no file {known[3]}: set HEADWAY_DATA .* or pass --download"):
        find_all("novels/core")
    for wrong in ("novels/cor", "../mine", ""):
        with pytest.raises(InputError):
            find_all(wrong)


def test_a_name_that_nobody_knows_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="did you mean 'tatoeba/fra-eng.zip'"):
        find("tatoeba/fra-emg.zip", download=True)
    for outside in ("../mine/x", "/etc/passwd", ""):
        with pytest.raises(InputError, match="no name of a data set"):
            find(outside)
    monkeypatch.setenv("HEADWAY_DATA", str(tmp_path / "gone"))
    with pytest.raises(InputError, match="HEADWAY_DATA is .*gone, which is not a folder"):
        find("tatoeba/fra-eng.zip")


def test_download_is_kept_in_the_cache(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FILES, "set/small.txt", entry(f"{address}/whole"))
    told: list[tuple[int, int | None]] = []
    path = find("set/small.txt.gz", download=True, progress=lambda done, total: told.append((done, total)))
    assert path == tmp_path / "cache" / "data" / "set" / "small.txt" and path.read_bytes() == CONTENT
    assert told[-1] == (len(CONTENT), len(CONTENT)) and len(told) > 1
    assert find("set/small.txt") == path
    assert os.listdir(path.parent) == ["small.txt"]


@pytest.mark.parametrize(
    ("page", "message"),
    [("whole", "is not what it was"), ("cut", "ended after"), ("gone", "could not fetch.*Not Found")],
)
def test_a_bad_download_leaves_nothing(address: str, tmp_path: Path, page: str, message: str) -> None:
    file = entry(f"{address}/{page}")
    wrong = File(file.name, file.url, "0" * 64)
    with pytest.raises(InputError, match=message):
        fetch(wrong if page == "whole" else file, tmp_path)
    assert os.listdir(tmp_path / "set") == []


def test_an_interrupted_download_leaves_nothing(address: str, tmp_path: Path) -> None:
    def interrupt(done: int, total: int | None) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch(entry(f"{address}/whole"), tmp_path, interrupt)
    assert os.listdir(tmp_path / "set") == []


def test_every_address_is_pinned_to_a_commit() -> None:
    assert len(FILES) == 50
    for name, file in FILES.items():
        assert name == file.name and len(file.sha256) == 64
        commit = file.url.split("/")[5]
        assert len(commit) == 40 and file.url.startswith("https://raw.githubusercontent.com/")


REAL = os.environ.get("HEADWAY_DATA")


@pytest.mark.skipif(not REAL, reason="HEADWAY_DATA is not set")
def test_the_checksums_are_those_of_the_files_at_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWAY_DATA", str(REAL))
    for file in FILES.values():
        path = find(file.name)
        repacked = path.suffix == ".gz" and not file.name.endswith(".gz")
        content = gzip.decompress(path.read_bytes()) if repacked else path.read_bytes()
        assert hashlib.sha256(content).hexdigest() == file.sha256, file.name
