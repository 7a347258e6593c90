"""The console examples of the documents, each page from top to bottom on one server, as a reader runs
them; and the links between the documents."""

from __future__ import annotations

import gzip
import re
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from conftest import Start
from support.programs import Programs, environment
from support.server import Server

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
# Pages without an example are not run.
PAGES_WITH_EXAMPLES = [page for page in PAGES if "```console" in page.read_text()]
DOCUMENTS = sorted(
    page for page in ROOT.glob("**/*.md") if not {"target", "node_modules"} & {*page.parts}
)
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# `bench` loads the server for eleven seconds.
DEADLINE_SECONDS = 120
# Commands whose output depends on the secret of a filter, or on chance: numbers are not compared.
BY_CHANCE = ("seenset explain", "--filter pages explain", "filter get", "curl -s")


@dataclass(frozen=True)
class Example:
    """A command of a page, and what stands below it."""

    line: int
    command: str
    output: str

    @property
    def fails(self) -> bool:
        """grpcurl prints this, on standard error, for a call that is refused."""
        return self.output.startswith("ERROR:")

    def comparable(self, text: str) -> str:
        text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME", text)
        if any(words in self.command for words in BY_CHANCE):
            text = re.sub(r"\b[0-9a-f]{32}\b", "HASH", text)
            text = re.sub(r"\d+(\.\d+)?(e-?\d+)?( \d+)*", "N", text)
        return text.rstrip()


def examples(text: str) -> Iterator[Example]:
    for block in BLOCK.finditer(text):
        line = text.count("\n", 0, block.start(1)) + 1
        for part in re.split(r"^\$ ", block[1], flags=re.MULTILINE)[1:]:
            command = re.match(r"(.*\\\n)*.*\n", part)
            assert command, part
            yield Example(line, command[0].rstrip(), part[command.end() :])
            line += part.count("\n")


def dump_of_redisbloom() -> bytes:
    """An empty filter of one layer, as BF.SCANDUMP hands it out."""
    bits = bytes(128)
    filters = struct.pack("<QIII", 0, 1, 4, 2)
    layer = struct.pack("<QQQddIQB", len(bits), len(bits) * 8, 0, 0.01, 9.6, 7, 100, 10)
    pieces = [(1, filters + layer), (1 + len(bits), bits)]
    return b"".join(struct.pack("<qq", at, len(data)) + data for at, data in pieces)


class Reader:
    """A shell with the programs and the files that the examples name."""

    def __init__(self, programs: Programs, server: Server, directory: Path) -> None:
        self.server = server
        self.directory = directory
        names = directory / "bin"
        names.mkdir()
        for name, program in (("seenset", programs.cli), ("grpcurl", programs.grpcurl)):
            (names / name).symlink_to(program)
        path = f"{names}:{environment()['PATH']}"
        self.environment = environment(SEENSET_SERVER=server.address, PATH=path)
        self.addresses = {
            "127.0.0.1:9090": server.address,
            "127.0.0.1:9091": server.metrics_address,
        }
        self.write_files()

    def write_files(self) -> None:
        for name, content in (
            ("urls-1.txt", "https://example.com/1\nhttps://example.com/2\n"),
            ("urls-2.txt", "https://example.com/2\nhttps://example.com/3\n"),
            ("already-crawled.txt", "https://example.com/1\nhttps://example.com/4\n"),
            ("words.txt", "spam\neggs\n"),
            ("posts.txt", "No word of the list.\nSome spam.\n"),
        ):
            (self.directory / name).write_text(content)
        kept = gzip.compress(b"https://example.com/kept\n")
        (self.directory / "keep-1.txt.gz").write_bytes(kept)
        (self.directory / "visited.dump").write_bytes(dump_of_redisbloom())
        guava = "seenset filter {} crawl.bloom {}"
        self.run(guava.format("create", "--capacity 1000 --layout guava"))
        self.run(guava.format("export", "crawl.bloom"))
        self.run(guava.format("delete", ""))

    def run(self, command: str) -> subprocess.CompletedProcess[str]:
        for written, real in self.addresses.items():
            command = command.replace(written, real)
        return subprocess.run(
            ["bash", "-o", "pipefail", "-c", command],
            cwd=self.directory,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DEADLINE_SECONDS,
            check=False,
        )


@pytest.fixture
def reader(programs: Programs, start: Start, tmp_path: Path) -> Reader:
    # What the pages start, but on free ports.
    return Reader(programs, start("--metrics-listen=127.0.0.1:0"), tmp_path)


@pytest.mark.parametrize("page", PAGES_WITH_EXAMPLES, ids=lambda page: page.name)
def test_every_console_example_does_what_it_shows(reader: Reader, page: Path) -> None:
    for example in examples(page.read_text()):
        where = f"{page.name}:{example.line}: $ {example.command}"
        if example.command.startswith("seenset-server "):
            # It runs already.
            assert example.command == "seenset-server --metrics-listen 127.0.0.1:9091 &", where
            continue
        result = reader.run(example.command)
        assert (result.returncode != 0) == example.fails, where + "\n" + result.stderr
        if example.output:
            shown = result.stderr if example.fails else result.stdout
            assert example.comparable(shown) == example.comparable(example.output), where


def test_the_pages_with_examples_are_found() -> None:
    assert len(PAGES_WITH_EXAMPLES) > 5
    count = sum(len([*examples(page.read_text())]) for page in PAGES_WITH_EXAMPLES)
    assert count > 30, "examples are missing, or are not found"


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub makes of the headings of a page."""
    headings = HEADING.findall(page.read_text())
    words = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.strip().replace(" ", "-") for heading in words}


def test_every_link_between_documents_leads_somewhere() -> None:
    broken, followed = [], 0
    for page in DOCUMENTS:
        for link in LINK.findall(CODE.sub("", page.read_text())):
            if re.match(r"[a-z]+:", link):
                continue
            path, _, anchor = link.partition("#")
            target = page.parent / path if path else page
            is_there = target.exists()
            if is_there and anchor:
                is_there = target.suffix == ".md" and anchor in anchors(target)
            if not is_there:
                broken.append(f"{page.relative_to(ROOT)}: {link}")
            followed += 1
    assert not broken, "\n".join(broken)
    assert followed > 100


def test_examples_are_taken_apart_as_they_stand() -> None:
    text = "a\n```console\n$ one \\\n    two  # a comment\nout\n\nput\n$ three\n```\n```sh\n$ no\n```\n"
    assert list(examples(text)) == [
        Example(3, "one \\\n    two  # a comment", "out\n\nput\n"),
        Example(8, "three", ""),
    ]
    example = Example(1, "seenset explain a", "")
    assert example.comparable("bits 12 7 9, rate 1.5e-3, none\n") == "bits N, rate N, none"
    assert Example(1, "grpcurl -plaintext", "").comparable('{"n": "12"}') == '{"n": "12"}'
