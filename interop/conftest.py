"""What every test can ask for: the programs, the contract, a server, the site."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from support.client import Client
from support.contract import Contract
from support.programs import Missing, Programs
from support.server import SMALL, Server
from support.site import Site
from support.volume import OPT_OUT, Volume

ROOT = Path(__file__).parents[1]

Start = Callable[..., Server]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--release",
        type=Path,
        default=ROOT / "target" / "release",
        help="where the release build is",
    )
    parser.addoption("--buf", default="buf", help="the buf program")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Finds all programs before the first test, so that a missing one is the one message."""
    options = session.config.option
    try:
        session.config.stash[PROGRAMS] = Programs.find(options.release.absolute(), options.buf)
    except Missing as missing:
        pytest.exit(str(missing), returncode=1)


PROGRAMS = pytest.StashKey[Programs]()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With several processes (pytest-xdist) a module stays in one, for its tests share fixtures.
    The longest modules begin first, so that the processes end at about the same time."""
    longest = ["test_faults[always]", "test_crawl", "test_faults[interval]"]

    def group(item: pytest.Item) -> str:
        callspec = getattr(item, "callspec", None)
        mode = callspec and callspec.params.get("laboratory")
        return f"{item.path.stem}[{mode}]" if mode else item.path.stem

    for item in items:
        item.add_marker(pytest.mark.xdist_group(group(item)))
    items.sort(key=lambda item: longest.index(g) if (g := group(item)) in longest else len(longest))


@pytest.fixture(scope="session")
def programs(pytestconfig: pytest.Config) -> Programs:
    return pytestconfig.stash[PROGRAMS]


@pytest.fixture(scope="session")
def contract(tmp_path_factory: pytest.TempPathFactory) -> Contract:
    return Contract(tmp_path_factory.mktemp("stubs"))


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """The directory that `start` uses unless it is told another."""
    return tmp_path / "data"


@pytest.fixture
def start(programs: Programs, contract: Contract, data_dir: Path) -> Iterator[Start]:
    """Starts servers; all of them end with the test."""
    with ExitStack() as servers:

        def start(*flags: str, data_dir: Path = data_dir, **options: object) -> Server:
            server = Server(programs.server, contract, data_dir, *(flags or SMALL), **options)
            return servers.enter_context(server)

        yield start


@pytest.fixture
def server(start: Start) -> Server:
    """A server with an empty small filter."""
    return start()


@pytest.fixture
def client(server: Server) -> Client:
    return server.client


@pytest.fixture(scope="session")
def site() -> Iterator[Site]:
    """The toolchain's documentation, served on loopback."""
    with Site.of_toolchain() as site:
        yield site


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[Volume]:
    """A file system of its own. A test names it before `start`, whose servers end first."""
    if os.environ.get(OPT_OUT):
        pytest.skip(f"no volume is made, for {OPT_OUT} is set")
    with Volume(tmp_path) as volume:
        yield volume
