"""`seenset dedup` over every link of a real site, against an exact first-occurrence filter."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.programs import Programs, run
from support.server import Server
from support.site import Site

RATE = 0.01


class Links:
    """The links as a file of lines, and what an exact filter makes of it."""

    def __init__(self, lines: list[str], file: Path) -> None:
        self.lines = lines
        self.file = file
        file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        self.first_occurrences = list(dict.fromkeys(lines))


@pytest.fixture(scope="module")
def links(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Links:
    assert len(site.hrefs) >= 200_000
    assert len(set(site.hrefs)) >= 20_000
    return Links(site.hrefs, tmp_path_factory.mktemp("links") / "hrefs.txt")


@pytest.fixture(params=["blocked", "classic"])
def full(request: pytest.FixtureRequest, links: Links, start) -> Server:
    """A server whose filter is exactly at capacity once all links have been added."""
    capacity = len(links.first_occurrences)
    return start(
        f"--capacity={capacity}",
        f"--false-positive-rate={RATE}",
        f"--layout={request.param}",
        "--kind=plain",
    )


def missing(expected: list[str], printed: list[str]) -> int:
    """How many lines of `expected` are not in `printed`, which may differ in nothing else:
    no line too many, none twice, and the order kept."""
    rest = iter(expected)
    for line in printed:
        # Runs ahead to the line; the end of the iterator means that it has no place here.
        assert line in rest, f"an extra line, or one out of order: {line!r}"
    return len(expected) - len(printed)


def test_the_same_lines_as_an_exact_filter(programs: Programs, links: Links, full: Server) -> None:
    dedup = [programs.cli, "dedup", "--output=json", f"--server=http://{full.address}"]
    result = run(*dedup, links.file)
    assert result.returncode == 0, result.stderr
    printed = result.stdout.splitlines()
    lost = missing(links.first_occurrences, printed)
    # On the way to its capacity the filter is emptier than at it, so this bound is a wide one.
    assert lost <= RATE * len(links.first_occurrences)
    summary = json.loads(result.stderr)
    assert (summary["lines"], summary["new"]) == (len(links.lines), len(printed))
    assert summary["seen"] == len(links.lines) - len(printed)
    assert summary["lines_per_second"] > 0 < summary["seconds"]
    assert full.client.get_filter().keys_added == len(printed)

    # All of it again, through a pipe: nothing is new.
    again = run(*dedup, stdin=links.file.read_text(encoding="utf-8"))
    assert (again.returncode, again.stdout) == (0, ""), again.stderr
