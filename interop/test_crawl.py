"""The main job on real input: eight workers, one service, thousands of real pages."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from support.programs import Programs, run
from support.site import Site

# The crawl of both kinds takes well under a minute each; only a hanging one gets there.
CRAWL_SECONDS = 400
# So few false positives that none is to be expected among tens of thousands of URLs.
EXACT = ("--capacity=1000000", "--false-positive-rate=1e-9")


def crawl(programs: Programs, site: Site, *flags: str) -> dict[str, float]:
    result = run(programs.crawler, site.start, *flags, deadline=CRAWL_SECONDS)
    assert result.returncode == 0, result.stderr[-2000:]
    totals = dict(re.findall(r"^(\w+) ([0-9.]+)$", result.stdout, re.MULTILINE))
    return {name: float(value) for name, value in totals.items()}


def requests_of(site: Site) -> Counter[str]:
    requests = site.take_requests()
    assert requests, "the crawler asked for nothing"
    return requests


@pytest.fixture(scope="module")
def single_process(programs: Programs, site: Site) -> tuple[dict[str, float], Counter[str]]:
    """The reference: one worker with an exact set and no service."""
    site.take_requests()
    return crawl(programs, site, "--exact"), requests_of(site)


def test_the_reference_is_what_the_files_say(
    site: Site, single_process: tuple[dict[str, float], Counter[str]]
) -> None:
    _, requests = single_process
    assert len(site.pages) >= 2_000
    assert requests == Counter(site.pages | site.dead)


def test_eight_workers_fetch_every_reachable_page_exactly_once(
    programs: Programs,
    site: Site,
    start,
    tmp_path: Path,
    single_process: tuple[dict[str, float], Counter[str]],
) -> None:
    reference, exact = single_process
    server = start(*EXACT)
    hrefs = tmp_path / "hrefs"
    totals = crawl(
        programs,
        site,
        "--workers=8",
        f"--server=http://{server.address}",
        f"--hrefs={hrefs}",
    )
    requests = requests_of(site)
    assert set(requests.values()) == {1}, "a page was fetched twice"
    assert requests == exact

    assert totals["pages_fetched"] == reference["pages_fetched"] == len(site.pages)
    assert totals["errors"] == reference["errors"] == len(site.dead)
    assert totals["links_found"] == reference["links_found"]
    assert totals["duplicates_avoided"] == reference["duplicates_avoided"]
    # Each URL was new once: the start, and every link that was not avoided.
    won = totals["links_found"] - totals["duplicates_avoided"] + 1
    assert won == len(requests) == server.client.get_filter().keys_added
    with hrefs.open() as lines:
        assert sum(1 for _ in lines) >= totals["links_found"]


def test_a_second_crawl_has_nothing_left_to_do(programs: Programs, site: Site, start) -> None:
    """What was crawled stays crawled, across a restart: a worker that starts again is told."""
    server = start(*EXACT)
    server.client.add(site.start)
    assert server.stop() == 0
    server = start(*EXACT)
    site.take_requests()
    result = run(programs.crawler, site.start, f"--server=http://{server.address}")
    assert result.returncode == 1
    assert site.start in result.stderr
    assert not site.take_requests()
