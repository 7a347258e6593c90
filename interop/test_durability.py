"""Promise 5, in the system's own words: what `Store` asks of the disk before it answers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.programs import Programs
from support.server import SMALL, Server
from support.trace import Trace

CALLS = "fsync,fdatasync,rename,renameat,renameat2,openat,unlink,unlinkat"


@pytest.fixture
def traced(programs: Programs, start, tmp_path: Path) -> tuple[Server, Trace]:
    trace = Trace(tmp_path / "trace")
    server = start(*SMALL, wrapper=trace.wrapper(programs, "-e", f"trace={CALLS}"))
    return server, trace


def the_one(calls: list[str], pattern: str) -> int:
    """Where the one call is that matches, and that succeeded."""
    places = [place for place, call in enumerate(calls) if re.search(pattern, call)]
    assert len(places) == 1, f"{pattern}: {calls}"
    assert calls[places[0]].endswith("= 0"), calls[places[0]]
    return places[0]


def committed(calls: list[str], directory: str) -> tuple[int, int]:
    """Where a manifest begins to count and where it is certain to, after it was written whole."""
    manifest = rf"{directory}/MANIFEST"
    written = the_one(calls, rf"f(data)?sync\(\d+<{manifest}\.tmp>\)")
    renamed = the_one(calls, rf'rename\w*\(.*"{manifest}\.tmp".*"{manifest}"')
    named = [
        place
        for place, call in enumerate(calls)
        if re.search(rf"fsync\(\d+<{directory}>\)", call) and call.endswith("= 0")
    ]
    assert written < renamed < named[-1], calls
    return renamed, named[-1]


def assert_stored(calls: list[str], directory: str, filter: str) -> None:
    """A snapshot and its name are on stable storage before a manifest names it."""
    snapshot = rf"{directory}/{filter}\.snapshot\.[0-9a-f]{{16}}"
    written = the_one(calls, rf"f(data)?sync\(\d+<{snapshot}>\)")
    named = next(
        place
        for place, call in enumerate(calls)
        if place > written and re.search(rf"fsync\(\d+<{directory}>\)", call)
    )
    renamed, _ = committed(calls, directory)
    assert written < named < renamed, calls


def test_a_store_is_on_stable_storage_when_it_is_acknowledged(
    traced: tuple[Server, Trace], data_dir: Path
) -> None:
    server, trace = traced
    server.client.add_batch([str(number) for number in range(1000)])
    (before,) = data_dir.glob("default.*")
    trace.take()
    server.client.store("default")
    calls = trace.take()

    directory = re.escape(str(data_dir))
    assert_stored(calls, directory, "default")
    # The snapshot before is removed when nothing needs it any more, and never written to.
    removed = the_one(calls, rf'unlink\w*\(.*"{re.escape(str(before))}"')
    assert removed > committed(calls, directory)[1]
    assert not any("openat" in call and str(before) in call for call in calls)


def test_making_and_removing_a_filter_are_as_durable(
    traced: tuple[Server, Trace], data_dir: Path
) -> None:
    server, trace = traced
    directory = re.escape(str(data_dir))
    trace.take()
    server.client.create_filter("pages", capacity=1000, false_positive_rate=0.01)
    assert_stored(trace.take(), directory, "pages")

    server.client.delete_filter("pages")
    calls = trace.take()
    removed = the_one(calls, rf'unlink\w*\(.*"{directory}/pages\.snapshot\.[0-9a-f]+"')
    assert removed > committed(calls, directory)[1]


def test_the_last_snapshot_is_as_durable(traced: tuple[Server, Trace], data_dir: Path) -> None:
    server, trace = traced
    server.client.add("a")
    trace.take()
    assert server.stop() == 0
    assert_stored(trace.take(), re.escape(str(data_dir)), "default")


def test_a_data_directory_that_is_made_is_as_durable(
    traced: tuple[Server, Trace], data_dir: Path
) -> None:
    _, trace = traced
    the_one(trace.take(), rf"fsync\(\d+<{re.escape(str(data_dir.parent))}>\)")
