"""Promise 5, in the system's own words: what `Store` asks of the disk before it answers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.programs import Programs
from support.server import SMALL, Server

CALLS = "fsync,fdatasync,rename,renameat,renameat2,openat,unlink,unlinkat"


class Trace:
    """The system calls of a server, as strace writes them: with the path of each descriptor."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._taken = 0

    def take(self) -> list[str]:
        """The calls that ended since this was last called, in their order."""
        text = self._file.read_text()
        calls, rest = [], text[self._taken :]
        self._taken = len(text)
        unfinished: dict[str, str] = {}
        for line in rest.splitlines():
            thread, _, call = line.partition(" ")
            call = call.strip()
            if call.endswith("<unfinished ...>"):
                unfinished[thread] = call.removesuffix("<unfinished ...>").rstrip()
            elif resumed := re.match(r"<\.\.\. \w+ resumed>(.*)", call):
                calls.append(unfinished.pop(thread, "") + resumed[1])
            else:
                calls.append(call)
        return calls


@pytest.fixture
def traced(programs: Programs, start, tmp_path: Path) -> tuple[Server, Trace]:
    file = tmp_path / "trace"
    # -D: the traced server, not strace, is the process that was started, so that its id is
    # the server's. -y: paths beside descriptors.
    wrapper = [programs.strace, "-D", "-f", "-y", "-e", f"trace={CALLS}", "-o", file]
    server = start(*SMALL, wrapper=wrapper)
    return server, Trace(file)


def the_one(calls: list[str], pattern: str) -> int:
    """Where the one call is that matches, and that succeeded."""
    places = [place for place, call in enumerate(calls) if re.search(pattern, call)]
    assert len(places) == 1, f"{pattern}: {calls}"
    assert calls[places[0]].endswith("= 0"), calls[places[0]]
    return places[0]


def test_a_store_is_on_stable_storage_when_it_is_acknowledged(
    traced: tuple[Server, Trace], data_dir: Path
) -> None:
    server, trace = traced
    server.client.add_batch([str(number) for number in range(1000)])
    trace.take()
    server.client.store("default")
    calls = trace.take()

    directory = re.escape(str(data_dir))
    temporary = rf"{directory}/default\.snapshot\.tmp"
    snapshot = rf"{directory}/default\.snapshot"
    written = the_one(calls, rf"f(data)?sync\(\d+<{temporary}>\)")
    renamed = the_one(calls, rf'rename\w*\(.*"{temporary}".*"{snapshot}"')
    named = the_one(calls, rf"fsync\(\d+<{directory}>\)")
    assert written < renamed < named
    # The snapshot in place is never opened to be written.
    for call in calls:
        if call.startswith("openat") and re.search(rf'"{snapshot}"', call):
            assert not re.search("O_WRONLY|O_RDWR", call), call


def test_making_and_removing_a_filter_are_as_durable(
    traced: tuple[Server, Trace], data_dir: Path
) -> None:
    server, trace = traced
    directory = re.escape(str(data_dir))
    trace.take()
    server.client.create_filter("pages", capacity=1000, false_positive_rate=0.01)
    calls = trace.take()
    written = the_one(calls, rf"f(data)?sync\(\d+<{directory}/pages\.snapshot\.tmp>\)")
    renamed = the_one(calls, rf'rename\w*\(.*"{directory}/pages\.snapshot"')
    named = the_one(calls, rf"fsync\(\d+<{directory}>\)")
    assert written < renamed < named

    server.client.delete_filter("pages")
    calls = trace.take()
    removed = the_one(calls, rf'unlink\w*\(.*"{directory}/pages\.snapshot"')
    assert removed < the_one(calls, rf"fsync\(\d+<{directory}>\)")


def test_the_last_snapshot_is_as_durable(traced: tuple[Server, Trace], data_dir: Path) -> None:
    server, trace = traced
    server.client.add("a")
    trace.take()
    assert server.stop() == 0
    calls = trace.take()
    directory = re.escape(str(data_dir))
    written = the_one(calls, rf"f(data)?sync\(\d+<{directory}/default\.snapshot\.tmp>\)")
    renamed = the_one(calls, rf'rename\w*\(.*"{directory}/default\.snapshot"')
    named = the_one(calls, rf"fsync\(\d+<{directory}>\)")
    assert written < renamed < named


def test_a_data_directory_that_is_made_is_as_durable(
    traced: tuple[Server, Trace], data_dir: Path
) -> None:
    _, trace = traced
    the_one(trace.take(), rf"fsync\(\d+<{re.escape(str(data_dir.parent))}>\)")
