"""Filters of other programs, against the real Guava and the real RedisBloom."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from support.programs import Programs, environment, run
from support.server import Server

HERE = Path(__file__).parent
KEYS = 100_000
START_SECONDS = 60


def made(prefix: str, count: int = KEYS) -> list[str]:
    """Of all lengths that a hash treats in its own way, and not of ASCII alone."""
    return [f"{prefix}/{'ä' * (number % 20)}/{number}/😀" for number in range(count)]


def as_hexadecimal(path: Path, keys: list[str]) -> Path:
    path.write_text("".join(f"{key.encode().hex()}\n" for key in keys))
    return path


class Seenset:
    """The program against a server, for one filter."""

    def __init__(self, program: Path, server: Server, directory: Path) -> None:
        self.program = program
        self.server = server
        self.directory = directory

    def __call__(self, *arguments: str | Path) -> str:
        result = run(self.program, *arguments, SEENSET_SERVER=self.server.address)
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout

    def load(self, name: str, keys: list[str]) -> None:
        lines = self.directory / "lines"
        lines.write_text("".join(f"{key}\n" for key in keys))
        self("load", "--filter", name, lines)

    def seen(self, name: str, keys: list[str]) -> int:
        batches = (keys[first : first + 10_000] for first in range(0, len(keys), 10_000))
        return sum(sum(self.server.client.query_batch(batch, name)) for batch in batches)


class Guava:
    """The real one."""

    def __init__(self, programs: Programs) -> None:
        self.java = programs.java
        self.jar = programs.guava

    def __call__(self, *arguments: str | Path) -> str:
        program = HERE / "guava" / "Filters.java"
        result = run(self.java, "-cp", self.jar, program, *arguments)
        assert result.returncode == 0, result.stderr
        return result.stdout


@pytest.fixture
def guava(programs: Programs) -> Guava:
    return Guava(programs)


@pytest.fixture
def seenset(programs: Programs, server: Server, tmp_path: Path) -> Seenset:
    return Seenset(programs.cli, server, tmp_path)


@pytest.mark.parametrize("funnel", ["string", "bytes"])
@pytest.mark.parametrize("strategy", [0, 1])
def test_a_filter_of_guava_is_served_and_goes_back(
    guava: Guava, seenset: Seenset, tmp_path: Path, strategy: int, funnel: str
) -> None:
    theirs, ours = made("theirs"), made("ours")
    keys = as_hexadecimal(tmp_path / "keys", theirs)
    file, back = tmp_path / "java.bloom", tmp_path / "back.bloom"
    guava("create", str(strategy), funnel, str(2 * KEYS), "0.001", keys, file)
    seenset("filter", "import", "java", file, "--format=guava", f"--capacity={2 * KEYS}")
    assert seenset.seen("java", theirs) == KEYS
    assert seenset.seen("java", made("nobody", 10_000)) < 30
    # As it came, byte for byte.
    seenset("filter", "export", "java", back)
    assert back.read_bytes() == file.read_bytes()

    seenset.load("java", ours)
    filter = seenset.server.client.get_filter("java")
    # The few that were seen by accident are not among them, and theirs are an estimate.
    assert abs(filter.keys_added - 2 * KEYS) < KEYS // 100
    measured = filter.measured_false_positive_rate
    assert measured.lowest < 0.0012, measured
    seenset("filter", "export", "java", back)
    everybody = as_hexadecimal(tmp_path / "all", theirs + ours)
    found, asked = map(int, guava("query", funnel, everybody, back).split())
    assert found == asked == 2 * KEYS
    # What Java makes of all keys, in its own order, are the same bytes: but a key that was seen by
    # accident changes nothing there either.
    again = tmp_path / "again.bloom"
    guava("create", str(strategy), funnel, str(2 * KEYS), "0.001", everybody, again)
    assert again.read_bytes() == back.read_bytes()


@pytest.mark.parametrize(("strategy", "layout"), [(0, "guava-mitz-32"), (1, "guava")])
def test_a_filter_made_here_is_guavas(
    guava: Guava, seenset: Seenset, start, data_dir: Path, tmp_path: Path, strategy: int, layout: str
) -> None:
    keys = made("page")
    create = f"filter create pages -n {KEYS} -p 0.01 --layout={layout}"
    seenset(*create.split())
    seenset.load("pages", keys)
    theirs, ours = tmp_path / "theirs.bloom", tmp_path / "ours.bloom"
    given = as_hexadecimal(tmp_path / "keys", keys)
    guava("create", str(strategy), "string", str(KEYS), "0.01", given, theirs)
    seenset("filter", "export", "pages", ours)
    assert ours.read_bytes() == theirs.read_bytes()
    # After a crash as well, with what the log has.
    seenset.server.kill()
    seenset.server = start(data_dir=data_dir)
    assert seenset.seen("pages", keys) == KEYS
    seenset("filter", "export", "pages", ours)
    assert ours.read_bytes() == theirs.read_bytes()


@pytest.fixture
def redisbloom(programs: Programs, tmp_path: Path) -> Iterator[int]:
    """The port of a Redis that has the module."""
    port = free_port()
    arguments = ["--port", str(port), "--bind", "127.0.0.1", "--save", ""]
    process = subprocess.Popen(
        [programs.redis, *arguments, "--loadmodule", programs.redisbloom],
        cwd=tmp_path,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    try:
        until = time.monotonic() + START_SECONDS
        while True:
            try:
                redis.Redis(port=port).ping()
                break
            except redis.ConnectionError:
                assert process.poll() is None and time.monotonic() < until, "redis does not serve"
                time.sleep(0.05)
        yield port
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@pytest.mark.parametrize(
    ("command", "reserve"),
    [
        # In one layer, in four of them, and as the first releases made filters.
        ("create", ["0.001", str(KEYS)]),
        ("create", ["0.01", str(KEYS // 8), "EXPANSION", "2"]),
        ("create-powers", []),
    ],
)
def test_a_dump_of_redisbloom_is_served_and_no_key_is_lost(
    redisbloom: int,
    seenset: Seenset,
    start,
    data_dir: Path,
    tmp_path: Path,
    command: str,
    reserve: list[str],
) -> None:
    keys = made("theirs")
    given, dump = as_hexadecimal(tmp_path / "keys", keys), tmp_path / "crawl.dump"
    dumps = HERE / "redisbloom" / "dumps.py"
    result = run(sys.executable, dumps, str(redisbloom), command, "crawl", given, dump, *reserve)
    assert result.returncode == 0, result.stderr
    seenset("filter", "import", "crawl", dump, "--format=redisbloom")
    assert seenset.seen("crawl", keys) == KEYS
    # Others are seen as often as there: they have the same bits.
    others = made("nobody", 20_000)
    asked = as_hexadecimal(tmp_path / "others", others)
    result = run(sys.executable, dumps, str(redisbloom), "query", "crawl", asked)
    assert seenset.seen("crawl", others) == int(result.stdout.split()[0])
    ours = made("ours", 1000)
    seenset.load("crawl", ours)
    seenset.server.kill()
    seenset.server = start(data_dir=data_dir)
    assert seenset.seen("crawl", keys + ours) == KEYS + len(ours)


def test_hostile_files_are_refused_before_memory_is_taken(
    programs: Programs, server: Server, tmp_path: Path
) -> None:
    file = tmp_path / "hostile"
    for content, said in (
        (b"", "file length"),
        (b"\x01\x07\x7f\xff\xff\xff", "file length"),
        (b"\x01\x00\x00\x00\x00\x01" + bytes(8), "hash_count"),
        (b"\x01\xff\x00\x00\x00\x01" + bytes(8), "hash_count"),
        (b"\x01\x07\x00\x00\x00\x02" + bytes(8), "word_count"),
    ):
        file.write_bytes(content)
        before = server.status_kib("VmSize")
        result = run(
            programs.cli, "filter", "import", "java", file, "--format=guava",
            SEENSET_SERVER=server.address,
        )
        assert result.returncode == 1
        assert said in result.stderr, result.stderr
        # Some threads, and no 17 GB.
        assert server.status_kib("VmSize") - before < 1 << 20
    assert [filter.name for filter in server.client.list_filters().filters] == ["default"]
