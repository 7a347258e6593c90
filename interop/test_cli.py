"""The command line against a server: what it prints, and its exit codes."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
from pathlib import Path

import pytest

from support.programs import DEADLINE_SECONDS, Programs, environment, run
from support.server import Server


class Seenset:
    def __init__(self, program: Path, address: str) -> None:
        self.program = program
        self.address = address

    def __call__(self, *arguments: str | Path, stdin: str = "", code: int = 0) -> str:
        result = run(self.program, *arguments, stdin=stdin, SEENSET_SERVER=self.address)
        assert result.returncode == code, result.stdout + result.stderr
        return result.stderr if code else result.stdout


@pytest.fixture
def seenset(programs: Programs, server: Server) -> Seenset:
    return Seenset(programs.cli, server.address)


def test_keys(seenset: Seenset) -> None:
    assert seenset("query", "a") == "new\ta\n"
    assert seenset("query-and-add", "a", "b", "a") == "new\ta\nnew\tb\nseen\ta\n"
    seenset("add", "c")
    assert seenset("query", "a", "c", "d") == "seen\ta\nseen\tc\nnew\td\n"
    lines = seenset("query", "--output=json", "a", "d").splitlines()
    assert [json.loads(line) for line in lines] == [
        {"key": "a", "seen": True},
        {"key": "d", "seen": False},
    ]


def test_dedup_keeps_first_occurrences_in_order(seenset: Seenset, tmp_path: Path) -> None:
    assert seenset("dedup", stdin="b\na\nb\nc\na\n") == "b\na\nc\n"
    # No final newline, CRLF, empty lines: the key is the line without its ending.
    assert seenset("dedup", stdin="a\r\n\nd\r\nb\n\ne") == "d\r\ne\n"
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_text("f\na\n")
    second.write_text("f\ng\n")
    assert seenset("dedup", first, second) == "f\ng\n"


def test_dedup_goes_on_past_bad_lines_and_says_where_they_are(
    programs: Programs, server: Server, tmp_path: Path
) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b"a\nz\0z\nb\n" + b"x" * 65_537 + b"\nc\na\n")
    result = run(programs.cli, "dedup", file, SEENSET_SERVER=server.address)
    assert result.stdout == "a\nb\nc\n"
    assert f"{file}:2: " in result.stderr
    assert f"{file}:4: " in result.stderr
    assert result.returncode == 1, "bad lines are not passed over in silence"
    assert server.client.query_batch(["a", "b", "c"]) == [True] * 3


def test_load(seenset: Seenset, server: Server, tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_text("".join(f"{number}\n" for number in range(5000)))
    seenset("load", file)
    assert server.client.query_batch([str(number) for number in range(5000)]) == [True] * 5000


def test_a_broken_pipe_ends_quietly(programs: Programs, server: Server, tmp_path: Path) -> None:
    file = tmp_path / "lines"
    # More than a pipe holds, so that there is somebody left to write when `head` has gone.
    file.write_text("".join(f"https://example.com/{number}\n" for number in range(200_000)))
    pipe = f'set -o pipefail; "{programs.cli}" dedup "{file}" | head -n 1'
    result = subprocess.run(
        ["bash", "-c", pipe],
        env=environment(SEENSET_SERVER=server.address),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (result.returncode, result.stdout) == (141, "https://example.com/0\n"), result.stderr
    assert result.stderr == ""


def test_dedup_from_a_pipe_that_stays_open(programs: Programs, server: Server) -> None:
    """The lines of a slow producer come out as they come in, not at the end."""
    process = subprocess.Popen(
        [programs.cli, "dedup"],
        env=environment(SEENSET_SERVER=server.address),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        for line in (b"a\n", b"b\n"):
            process.stdin.write(line)
            process.stdin.flush()
            readable, _, _ = select.select([process.stdout], [], [], 30)
            assert readable, f"{line!r} is held back"
            assert os.read(process.stdout.fileno(), 100) == line
        rest, summary = process.communicate(timeout=60)
        assert (rest, process.returncode) == (b"", 0), summary
    finally:
        process.kill()
        process.communicate(timeout=60)


def test_filters(seenset: Seenset, tmp_path: Path) -> None:
    seenset("filter", "create", "pages", "--capacity=1000", "--false-positive-rate=0.01")
    assert seenset("query-and-add", "--filter=pages", "a") == "new\ta\n"
    shown = json.loads(seenset("filter", "get", "--output=json", "pages"))
    assert (shown["name"], shown["capacity"], shown["keys_added"]) == ("pages", 1000, 1)
    assert shown["measured_false_positive_rate"]["canaries_seen"] == 0
    assert (shown["estimated_keys"], shown["is_full"]) == (1, False)
    assert "false-positive rate: asked 0.01, predicted " in seenset("filter", "get", "pages")
    listed = seenset("filter", "list", "--output=json").splitlines()
    assert [json.loads(line)["name"] for line in listed] == ["default", "pages"]
    (stored,) = seenset("store", "--filter=pages", "--output=json").splitlines()
    assert json.loads(stored)["version"] == shown["version"]
    seenset("filter", "rename", "pages", "old")
    assert seenset("query", "--filter=old", "a") == "seen\ta\n"
    seenset("filter", "rename", "old", "pages")
    seenset("filter", "copy", "pages", "copy")
    seenset("query-and-add", "--filter=copy", "b")
    seenset("filter", "merge", "copy", "pages")
    assert seenset("query", "--filter=pages", "b") == "seen\tb\n"
    seenset("filter", "reset", "pages")
    assert seenset("query", "--filter=copy", "a") == "seen\ta\n"
    (keep := tmp_path / "keep.txt").write_text("b\nc\n")
    rebuilt = seenset("filter", "rebuild", "copy", "--capacity=5000", keep).splitlines()
    assert (rebuilt[0].split(";")[0], rebuilt[1]) == ("2 lines: 2 added, 0 empty, 0 bad", "copy")
    assert seenset("query", "--filter=copy", "a", "b") == "new\ta\nseen\tb\n"
    seenset("filter", "delete", "copy")
    assert seenset("query", "--filter=pages", "a") == "new\ta\n"
    seenset("filter", "delete", "pages")
    assert "pages" in seenset("query", "--filter=pages", "a", code=1)


def test_explain(seenset: Seenset) -> None:
    seenset("filter", "create", "urls", "--capacity=1000", "--key-profile=url-v1")
    key = "HTTP://EXAMPLE.com#top"
    shown = json.loads(seenset("explain", "--filter=urls", "--output=json", key))
    assert (shown["canonical_key"], shown["seen"]) == ("http://example.com/", False)
    assert seenset("query-and-add", "--filter=urls", "http://example.com/") == (
        "new\thttp://example.com/\n"
    )
    assert seenset("explain", "--filter=urls", key).startswith("seen\thttp://example.com/\n")


def test_plan_needs_no_server(programs: Programs) -> None:
    result = run(
        programs.cli,
        *("plan", "--output=json", "--capacity=1000000", "--false-positive-rate=0.01"),
        "--kind=plain",
        SEENSET_SERVER="127.0.0.1:1",
    )
    assert result.returncode == 0, result.stderr
    plans = {plan["layout"]: plan for plan in map(json.loads, result.stdout.splitlines())}
    assert plans["classic"]["bits_per_key"] <= 9.7
    assert plans["blocked"]["bits_per_key"] <= 10.2


def test_health_exit_codes(seenset: Seenset, server: Server) -> None:
    assert seenset("health") == "serving\n"
    assert server.stop() == 0
    assert seenset("health", code=1) != ""


def test_usage_errors(seenset: Seenset) -> None:
    for arguments in (["query"], ["dedupe"], ["query", "--output=xml", "a"]):
        assert seenset(*arguments, code=2) != ""
    assert "key" in seenset("query", "", code=1)


def test_a_missing_file_is_named(seenset: Seenset, tmp_path: Path) -> None:
    assert str(tmp_path / "none") in seenset("dedup", tmp_path / "none", code=1)


@pytest.mark.parametrize("command", [["load"], ["load", "-"], ["dedup"], ["match"]])
def test_a_command_says_that_it_waits_for_a_terminal(
    programs: Programs, server: Server, command: list[str]
) -> None:
    keyboard, terminal = pty.openpty()
    with subprocess.Popen(
        [programs.cli, *command],
        env=environment(SEENSET_SERVER=server.address),
        stdin=terminal,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        said = process.stderr.readline()
        assert said == "seenset: reading lines from the terminal, up to Ctrl-D\n"
        os.write(keyboard, b"typed\n\x04")
        assert process.wait(timeout=DEADLINE_SECONDS) == 0
    os.close(keyboard)
    os.close(terminal)
    assert server.client.query_batch(["typed"]) == [command[0] != "match"]
