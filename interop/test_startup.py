"""What stops a start: one line that says what to do, exit code 2 for usage and 1 otherwise."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from support.programs import Programs, environment, run
from support.server import SMALL, Server


def refusal(programs: Programs, data_dir: Path, *flags: str, code: int, **settings: str) -> str:
    """Starts a server that must not start; the one line that it leaves."""
    listen = [] if any("--listen" in flag for flag in flags) else ["--listen=127.0.0.1:0"]
    result = run(programs.server, *listen, f"--data-dir={data_dir}", *flags, **settings)
    assert result.returncode == code, result.stdout + result.stderr
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("seenset-server: "), line
    return line


def test_a_second_server_on_one_data_directory(programs: Programs, start, data_dir: Path) -> None:
    first = start()
    first.client.add("a")
    assert str(data_dir) in refusal(programs, data_dir, code=1)
    # The same directory by another name is the same directory.
    link = data_dir.with_name("link")
    link.symlink_to(data_dir)
    refusal(programs, link, code=1)
    # The first has noticed nothing, and whoever comes after it may have the directory.
    assert first.client.query("a") is True
    first.kill()
    assert start().client.health() == 1


def test_a_port_in_use(programs: Programs, data_dir: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        line = refusal(programs, data_dir, f"--listen={address}", code=1)
    assert address in line


def test_an_unwritable_data_directory(programs: Programs, tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    data_dir.mkdir(mode=0o555)
    # Root may write anywhere, unless it gives that up.
    plain = (
        ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
    )
    result = run(*plain, programs.server, "--listen=127.0.0.1:0", f"--data-dir={data_dir}")
    assert result.returncode == 1, result.stderr
    (line,) = result.stderr.splitlines()
    assert str(data_dir) in line
    assert list(data_dir.iterdir()) == []


def test_a_file_in_the_place_of_the_data_directory(programs: Programs, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("somebody's")
    assert str(file) in refusal(programs, file, code=1)
    assert file.read_text() == "somebody's"


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("capacity", "0"),
        ("capacity", "-1"),
        ("capacity", "many"),
        ("false-positive-rate", "0"),
        ("false-positive-rate", "1"),
        ("false-positive-rate", "1.5"),
        ("false-positive-rate", "NaN"),
        ("bit-count", "1e9"),
        ("hash-count", "0"),
        ("hash-count", "65"),
        ("layout", "round"),
        ("store-interval", "soon"),
        ("drain-timeout", "-1s"),
        ("listen", "localhost"),
        ("listen", "127.0.0.1:99999"),
        ("max-key-bytes", "0"),
        ("max-batch-keys", "0"),
        ("max-memory", "0"),
        ("max-memory", "101%"),
        ("log-format", "xml"),
    ],
)
def test_a_bad_value(programs: Programs, data_dir: Path, flag: str, value: str) -> None:
    line = refusal(programs, data_dir, f"--{flag}={value}", code=2)
    assert flag in line or flag.replace("-", "_") in line
    assert value in line
    assert not data_dir.exists(), "bad usage left a directory behind"

    # The same value from the environment is as bad.
    variable = "SEENSET_" + flag.upper().replace("-", "_")
    if flag != "listen":
        refusal(programs, data_dir, code=2, **{variable: value})


def test_unknown_settings(programs: Programs, data_dir: Path, tmp_path: Path) -> None:
    assert "--capactiy" in refusal(programs, data_dir, "--capactiy=5", code=2)
    assert "SEENSET_CAPACTIY" in refusal(programs, data_dir, code=2, SEENSET_CAPACTIY="5")
    file = tmp_path / "seenset.toml"
    file.write_text('layout = "classic"\ncapactiy = 5\n')
    line = refusal(programs, data_dir, f"--config={file}", code=2)
    assert "capactiy" in line
    assert str(file) in line
    assert str(tmp_path / "none.toml") in refusal(
        programs, data_dir, f"--config={tmp_path / 'none.toml'}", code=2
    )


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("capacity = 0", "capacity"),
        ('capacity = "many"', "many"),
        ("false_positive_rate = 1.5", "false_positive_rate"),
        ("hash_count = 65", "hash_count"),
        ('layout = "round"', "round"),
        ("capacity = ", "line 1"),
    ],
)
def test_a_bad_value_in_the_file(
    programs: Programs, data_dir: Path, tmp_path: Path, line: str, named: str
) -> None:
    file = tmp_path / "seenset.toml"
    file.write_text(line + "\n")
    assert named in refusal(programs, data_dir, f"--config={file}", code=2)


def test_a_default_filter_past_the_memory_budget(programs: Programs, data_dir: Path) -> None:
    line = refusal(programs, data_dir, "--capacity=1000000000", "--max-memory=1MiB", code=1)
    assert "--max-memory" in line
    assert not list(data_dir.glob("*.snapshot*"))


def test_flags_win_over_the_environment_and_that_over_the_file(
    programs: Programs, data_dir: Path, tmp_path: Path
) -> None:
    file = tmp_path / "seenset.toml"
    file.write_text("capacity = 1\nmax_key_bytes = 1\nmax_batch_keys = 1\nstore_interval = '1s'\n")
    settings = {"SEENSET_MAX_KEY_BYTES": "2", "SEENSET_MAX_BATCH_KEYS": "2"}
    command = [programs.server, f"--config={file}", "--max-batch-keys=3", f"--data-dir={data_dir}"]
    printed = run(*command, "--print-config", **settings)
    assert printed.returncode == 0, printed.stderr
    lines = printed.stdout.splitlines()
    for expected in (
        "capacity = 1",
        "max_key_bytes = 2",
        "max_batch_keys = 3",
        'store_interval = "1s"',
        'listen = "127.0.0.1:9090"',
    ):
        assert expected in lines
    assert not data_dir.exists(), "printing the configuration made the data directory"

    # What is printed is a file that says the same.
    file.write_text(printed.stdout)
    assert run(programs.server, f"--config={file}", "--print-config").stdout == printed.stdout


@pytest.mark.parametrize("form", ["text", "json"])
def test_the_log_of_a_start(programs: Programs, data_dir: Path, form: str) -> None:
    """It says the size, the rate, the memory and the address."""
    server = subprocess.Popen(
        [
            programs.server,
            "--listen=127.0.0.1:0",
            f"--data-dir={data_dir}",
            f"--log-format={form}",
            "--capacity=1000000",
        ],
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
    )
    # Ends a wait for lines that never come.
    deadline = threading.Timer(60, server.kill)
    deadline.start()
    try:
        assert server.stderr is not None
        log = ""
        for line in server.stderr:
            log += line
            if "127.0.0.1:" in line:
                break
        else:
            raise AssertionError(f"the log ends without an address: {log}")
        for name in ("bit_count", "hash_count", "false_positive_rate", "memory_bytes"):
            assert name in log
        server.terminate()
        log += server.stderr.read()
        assert server.wait(timeout=60) == 0
        assert all(line.startswith("{") == (form == "json") for line in log.splitlines())
        assert "\x1b" not in log, "colours in what is no terminal"
    finally:
        deadline.cancel()
        server.kill()
        server.wait(timeout=60)
        server.stderr.close()


def test_the_log_says_which_filters_a_start_restores(start: Callable[..., Server]) -> None:
    """The default filter of an empty directory is created; a changed flag does not change it."""

    def log_of_a_start(*flags: str) -> tuple[dict[str, str], bool]:
        """The first message about each filter, and whether one warns of changed settings."""
        server = start(*flags)
        server.stop()
        of_filters: dict[str, str] = {}
        for entry in server.log:
            if "filter" in entry:
                of_filters.setdefault(entry["filter"], entry["message"])
        return of_filters, any("other settings" in entry["message"] for entry in server.log)

    assert log_of_a_start(*SMALL) == ({"default": "filter created"}, False)
    server = start(*SMALL)
    server.client.create_filter("pages", capacity=1000, false_positive_rate=0.01)
    server.stop()
    both = {"default": "filter restored", "pages": "filter restored"}
    assert log_of_a_start(*SMALL) == (both, False)
    assert log_of_a_start("--capacity=200000", *SMALL[2:]) == (both, True)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("fsync:error=EINVAL", ("fsync of the directory", "ext4 or XFS")),
        ("flock:error=ENOLCK", ("flock", "LOCK", "has no locks")),
        ("flock:error=EOPNOTSUPP", ("flock", "LOCK", "has no locks")),
        ("fdatasync:error=EINVAL", ("fdatasync", "MANIFEST", "does not support this call")),
        # Not a matter of the file system's kind.
        ("fsync:error=EIO", ("fsync of the directory", "Input/output error")),
    ],
)
def test_a_file_system_that_cannot_do_what_is_needed(
    programs: Programs, data_dir: Path, fault: str, words: tuple[str, ...]
) -> None:
    """As CIFS, FUSE or NFS may be: the line names the call, the file and what to do."""
    result = run(
        *(programs.strace, "-f", "--seccomp-bpf", "-qq", "-o", "/dev/null"),
        *("-e", f"trace={fault.split(':')[0]}", "-e", f"inject={fault}"),
        *(programs.server, "--listen=127.0.0.1:0", f"--data-dir={data_dir}", "--log-filter=off"),
    )
    assert result.returncode == 1, result.stderr
    (line,) = result.stderr.splitlines()
    for word in (str(data_dir), *words):
        assert word in line, line
