"""Promise 6 for files: a snapshot that is damaged, cut short or from a newer release stops
the start with an error that names it, and stays as it is for whoever can repair it."""

from __future__ import annotations

import re
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from support.kinds import KINDS, make
from support.programs import Programs, run
from support.server import SMALL, Server

FORMAT_OFFSET = 8


@pytest.fixture(scope="module")
def healthy(programs, contract, tmp_path_factory) -> Path:
    """A data directory with two filters; tests work on copies."""
    data_dir = tmp_path_factory.mktemp("healthy") / "data"
    with Server(programs.server, contract, data_dir, *SMALL) as server:
        server.client.create_filter("pages", capacity=500_000, false_positive_rate=0.01)
        keys = [str(number) for number in range(20_000)]
        server.client.add_batch(keys)
        server.client.add_batch(keys, filter="pages")
        assert server.stop() == 0
    return data_dir


# All but that of the filters above.
OTHER_KINDS = [kind for kind in KINDS if kind != "blocked"]
KEYS = [str(number) for number in range(20_000)]


@pytest.fixture(scope="module")
def family(programs, contract, tmp_path_factory) -> Path:
    """A data directory with a filter of each other kind; tests work on copies."""
    data_dir = tmp_path_factory.mktemp("family") / "data"
    with Server(programs.server, contract, data_dir, *SMALL) as server:
        for kind in OTHER_KINDS:
            make(server.client, kind, kind, capacity=120_000, rate=0.01)
            server.client.add_batch(KEYS, filter=kind)
        assert server.stop() == 0
    return data_dir


def flipped(place: float | int) -> Callable[[bytes], bytes]:
    """One bit of one byte turned: at an offset, or at a share of the file's length."""

    def flip(content: bytes) -> bytes:
        damaged = bytearray(content)
        offset = int(place * len(content)) if isinstance(place, float) else place
        damaged[offset] ^= 0x10
        return bytes(damaged)

    return flip


def newer(content: bytes) -> bytes:
    return content[:FORMAT_OFFSET] + struct.pack("<I", 99) + content[FORMAT_OFFSET + 4 :]


def zeroed(content: bytes) -> bytes:
    """A page that never reached the disk, as some file systems leave it after a crash."""
    middle = len(content) // 2 // 4096 * 4096
    return content[:middle] + bytes(4096) + content[middle + 4096 :]


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "magic": flipped(0),
    "version": flipped(24),
    "capacity": flipped(48),
    "secret": flipped(120),
    "name": flipped(140),
    "end of the header": flipped(383),
    "first shard": flipped(384 + 4),
    "a tenth in": flipped(0.1),
    "middle": flipped(0.5),
    "last byte": flipped(-1),
    "a page of zeros": zeroed,
    "newer format": newer,
    "older format": lambda content: (
        content[:FORMAT_OFFSET] + bytes(4) + content[FORMAT_OFFSET + 4 :]
    ),
    "empty": lambda _: b"",
    "a part of the header": lambda content: content[:100],
    "the header alone": lambda content: content[:384],
    "half": lambda content: content[: len(content) // 2],
    "a byte too few": lambda content: content[:-1],
    "a byte too many": lambda content: content + b"\0",
    "other contents": lambda content: b"\x7fELF" + b"x" * len(content),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_stops_the_start_and_stays(
    programs: Programs, healthy: Path, data_dir: Path, kind: str
) -> None:
    shutil.copytree(healthy, data_dir)
    (file,) = data_dir.glob("pages.*")
    damaged = DAMAGE[kind](file.read_bytes())
    assert damaged != file.read_bytes()
    file.write_bytes(damaged)
    before = contents(data_dir)

    for _ in range(2):
        result = run(programs.server, "--listen=127.0.0.1:0", f"--data-dir={data_dir}", *SMALL)
        assert result.returncode == 1, result.stderr
        errors = [
            line for line in result.stderr.splitlines() if line.startswith("seenset-server: ")
        ]
        assert len(errors) == 1, result.stderr
        assert str(file) in errors[0]
        assert contents(data_dir) == before, "a start that was stopped changed a file"

    result = run(programs.server, "verify", str(data_dir))
    assert result.returncode == 1
    assert str(file) in result.stdout + result.stderr
    assert contents(data_dir) == before, "looking at it changed a file"


@pytest.mark.parametrize("name", OTHER_KINDS)
def test_damage_to_any_kind_stops_the_start(
    programs: Programs, family: Path, data_dir: Path, name: str
) -> None:
    shutil.copytree(family, data_dir)
    (file,) = data_dir.glob(f"{name}.*")
    intact = file.read_bytes()
    for kind, damage in DAMAGE.items():
        file.write_bytes(damage(intact))
        before = contents(data_dir)
        result = run(programs.server, "--listen=127.0.0.1:0", f"--data-dir={data_dir}", *SMALL)
        assert result.returncode == 1, f"{kind}: {result.stderr}"
        assert str(file) in result.stderr, kind
        result = run(programs.server, "verify", str(data_dir))
        assert result.returncode == 1, kind
        assert str(file) in result.stdout + result.stderr, kind
        assert contents(data_dir) == before, kind


@pytest.mark.parametrize("log_has_it", [True, False])
@pytest.mark.parametrize("name", OTHER_KINDS)
def test_what_can_be_read_of_any_kind_is_salvaged(
    programs: Programs, start, family: Path, data_dir: Path, name: str, log_has_it: bool
) -> None:
    shutil.copytree(family, data_dir)
    if not log_has_it:
        assert start().stop() == 0
    (file,) = data_dir.glob(f"{name}.*")
    file.write_bytes(flipped(0.5)(file.read_bytes()))
    result = run(programs.server, "verify", str(data_dir), "--salvage")
    assert result.returncode == 0, result.stdout + result.stderr
    assert f"salvaged: filter {name}" in result.stdout
    assert run(programs.server, "verify", str(data_dir)).returncode == 0
    server = start()
    for other in OTHER_KINDS:
        seen = server.client.query_batch(KEYS, filter=other)
        # What a counting filter has stored is not counted again from the log.
        if other != name or (log_has_it and name != "counting"):
            assert all(seen), other
        else:
            assert 0 < seen.count(False) < len(KEYS), "a page is lost, and no more"
    assert server.stop() == 0


def test_a_whole_directory_is_verified(programs: Programs, healthy: Path, start) -> None:
    before = contents(healthy)
    result = run(programs.server, "verify", str(healthy))
    assert result.returncode == 0, result.stdout + result.stderr
    # But for false positives.
    assert re.search(r"filter pages: (199\d\d|20000) keys, 1 files: whole", result.stdout)
    assert contents(healthy) == before
    result = run(programs.server, "verify", str(healthy.with_name("nothing")))
    assert result.returncode == 1
    assert "cannot open the data directory" in result.stderr
    server = start()
    result = run(programs.server, "verify", str(server.data_dir))
    assert result.returncode == 1
    assert "is in use" in result.stderr


@pytest.mark.parametrize("log_has_it", [True, False])
def test_what_can_be_read_is_salvaged(
    programs: Programs, start, healthy: Path, data_dir: Path, log_has_it: bool
) -> None:
    shutil.copytree(healthy, data_dir)
    if not log_has_it:
        # What has been stored is not needed in the log from the next start on.
        assert start().stop() == 0
    (file,) = data_dir.glob("pages.*")
    damaged = flipped(0.1)(file.read_bytes())
    file.write_bytes(damaged)
    result = run(programs.server, "verify", str(data_dir), "--salvage")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "salvaged: filter pages" in result.stdout
    assert file.with_name(f"{file.name}.damaged").read_bytes() == damaged
    assert run(programs.server, "verify", str(data_dir)).returncode == 0
    server = start()
    keys = [str(number) for number in range(20_000)]
    assert all(server.client.query_batch(keys))
    seen = server.client.query_batch(keys, filter="pages")
    if log_has_it:
        assert all(seen), "the log has the keys of the page"
    else:
        assert 0 < seen.count(False) < len(keys), "a page is lost, and no more"
    assert server.stop() == 0


def contents(data_dir: Path) -> dict[str, bytes]:
    """All files but the lock, which says who had it last."""
    return {file.name: file.read_bytes() for file in data_dir.iterdir() if file.name != "LOCK"}


def test_the_message_says_what_was_expected_and_found(
    programs: Programs, healthy: Path, data_dir: Path
) -> None:
    shutil.copytree(healthy, data_dir)
    (file,) = data_dir.glob("pages.*")
    intact = file.read_bytes()
    for damage, words in ((newer, ["format 99", "reads format"]), (flipped(0.5), ["expected", "found"])):
        file.write_bytes(damage(intact))
        result = run(programs.server, "--listen=127.0.0.1:0", f"--data-dir={data_dir}", *SMALL)
        for word in words:
            assert word in result.stderr


def names(server: Server) -> list[str]:
    return [filter.name for filter in server.client.list_filters().filters]


def test_a_file_that_was_copied_by_hand_is_no_filter(
    start, healthy: Path, data_dir: Path
) -> None:
    """It would bring one filter up as two. It stays where it is, and the log says so."""
    shutil.copytree(healthy, data_dir)
    (file,) = data_dir.glob("pages.*")
    copy = file.with_name(file.name.replace("pages", "copies"))
    shutil.copyfile(file, copy)
    server = start()
    assert names(server) == ["default", "pages"]
    assert server.stop() == 0
    warnings = [str(entry) for entry in server.log if entry["level"] == "WARN"]
    assert any(copy.name in warning for warning in warnings), warnings
    assert copy.read_bytes() == file.read_bytes()


def test_a_file_in_the_place_of_another_is_refused(
    programs: Programs, healthy: Path, data_dir: Path
) -> None:
    shutil.copytree(healthy, data_dir)
    (pages,) = data_dir.glob("pages.*")
    (default,) = data_dir.glob("default.*")
    shutil.copyfile(default, pages)
    result = run(programs.server, "--listen=127.0.0.1:0", f"--data-dir={data_dir}", *SMALL)
    assert result.returncode == 1, result.stderr
    assert str(pages) in result.stderr


def test_without_the_damaged_file_the_others_are_served(
    start, healthy: Path, data_dir: Path
) -> None:
    """What the message advises works."""
    shutil.copytree(healthy, data_dir)
    (file,) = data_dir.glob("pages.*")
    file.rename(data_dir.with_name(file.name))
    server = start()
    assert names(server) == ["default"]
    assert server.client.query_batch(["0", "19999"]) == [True, True]
    assert server.stop() == 0
    data_dir.with_name(file.name).rename(file)
    server = start()
    assert server.client.query_batch(["0", "19999"], filter="pages") == [True, True]


def test_an_unfinished_snapshot_is_no_harm(start, healthy: Path, data_dir: Path) -> None:
    """It is what a crash in the middle of a store leaves."""
    shutil.copytree(healthy, data_dir)
    (file,) = data_dir.glob("pages.*")
    unfinished = file.with_name("pages.snapshot.00000000000000ff")
    unfinished.write_bytes(file.read_bytes()[:1000])
    server = start()
    assert not unfinished.exists()
    assert server.client.query_batch(["0", "19999"], filter="pages") == [True, True]
