"""`seenset dedup` through a server that is killed, and killed itself: each distinct line is written
once, and none is marked that is not written."""

from __future__ import annotations

import gzip
import os
import random
import subprocess
import threading
import time
from pathlib import Path

import pytest

from support.programs import Programs, environment
from support.server import Server

# Rates at which no line of a test is taken for another.
EXACT = ("--capacity=2000000", "--false-positive-rate=1e-9")
LINES = int(os.environ.get("SEENSET_CONTINUE_LINES", "300000"))
# Small ones, so that there is time to be killed in.
BATCHES = ("--batch-keys=200", "--window=8")
DEADLINE_SECONDS = 120


class Files:
    """Lines in three files, one of them compressed, of which every third has come before."""

    def __init__(self, directory: Path) -> None:
        lines = [f"https://example.com/{n if n % 3 else n // 2}" for n in range(LINES)]
        self.distinct = list(dict.fromkeys(lines))
        self.state = directory / "state"
        self.output = directory / "new.txt"
        self.output.touch()
        self.inputs = [directory / "a.txt", directory / "b.gz", directory / "c.txt"]
        part = len(lines) // 3
        for number, path in enumerate(self.inputs):
            end = None if number == 2 else (number + 1) * part
            text = "\n".join(lines[number * part : end]).encode()
            path.write_bytes(gzip.compress(text, 1) if path.suffix == ".gz" else text)

    def written(self) -> int:
        return self.output.stat().st_size


def dedup(programs: Programs, files: Files, address: str, *flags: str) -> subprocess.Popen[bytes]:
    command = [programs.cli, "dedup", f"--server={address}", *BATCHES, *flags, *files.inputs]
    with files.output.open("ab") as output:
        return subprocess.Popen(
            [str(part) for part in command],
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.PIPE,
        )


def ended(process: subprocess.Popen[bytes]) -> tuple[int, str]:
    _, stderr = process.communicate(timeout=DEADLINE_SECONDS)
    return process.returncode, stderr.decode()


def await_more(process: subprocess.Popen[bytes], files: Files, more: int) -> None:
    """Waits until the run has written more, or has ended."""
    start = files.written()
    deadline = time.monotonic() + DEADLINE_SECONDS
    while files.written() < start + more and process.poll() is None:
        assert time.monotonic() < deadline, "nothing is written"
        time.sleep(0.001)


def check(server: Server, files: Files) -> None:
    assert files.output.read_text().splitlines() == files.distinct
    assert server.client.get_filter().keys_added == len(files.distinct)


def restarted(start, server: Server) -> Server:
    """The same server again, after a SIGKILL and at the same address."""
    server.kill()
    return start(*EXACT, listen=server.address)


@pytest.mark.parametrize("flags", [(), ("--continue",)])
def test_a_killed_server_is_waited_for(
    programs: Programs, start, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    files = Files(tmp_path)
    server = start(*EXACT)
    continuing = [f"{flag}={files.state}" for flag in flags]
    process = dedup(programs, files, server.address, *continuing)
    await_more(process, files, 1_000_000)
    server.kill()
    # It has to wait for longer than six tries took, and then some.
    time.sleep(4)
    assert process.poll() is None, "it does not wait"
    server = start(*EXACT, listen=server.address)
    code, stderr = ended(process)
    assert code == 0, stderr
    check(server, files)
    assert not files.state.exists()


def test_a_killed_run_is_continued(programs: Programs, start, tmp_path: Path) -> None:
    files = Files(tmp_path)
    server = start(*EXACT)
    chance = random.Random(7)
    kills = 0
    while True:
        process = dedup(programs, files, server.address, f"--continue={files.state}")
        await_more(process, files, chance.randrange(1, 3_000_000))
        if process.poll() is not None:
            break
        process.kill()
        process.communicate()
        kills += 1
        if chance.random() < 0.3:
            server = restarted(start, server)
    code, stderr = ended(process)
    assert code == 0, stderr
    assert kills >= 2
    check(server, files)
    assert not files.state.exists()


def test_a_run_whose_server_stays_away_is_continued(
    programs: Programs, start, tmp_path: Path
) -> None:
    files = Files(tmp_path)
    server = start(*EXACT)
    flags = (f"--continue={files.state}", "--timeout=1s")
    process = dedup(programs, files, server.address, *flags)
    # In the midst of the run, and not between two batches that are answered.
    killer = threading.Thread(target=lambda: (await_more(process, files, 2_000_000), server.kill()))
    killer.start()
    code, stderr = ended(process)
    killer.join()
    assert code == 1, stderr
    assert "To continue, run the same command again." in stderr
    written = files.output.read_text().splitlines()
    assert written == files.distinct[: len(written)]
    server = start(*EXACT, listen=server.address)
    code, stderr = ended(dedup(programs, files, server.address, *flags))
    assert code == 0, stderr
    check(server, files)


def test_requests_that_are_forgotten_are_not_taken_for_seen(
    programs: Programs, start, tmp_path: Path
) -> None:
    files = Files(tmp_path)
    server = start(*EXACT, "--retry-keys=100000")
    flag = f"--continue={files.state}"
    process = dedup(programs, files, server.address, flag)
    await_more(process, files, 2_000_000)
    assert process.poll() is None
    process.kill()
    process.communicate()
    for number in range(300):
        request = server.contract.dedup.QueryAndAddBatchRequest(
            keys=[f"other {number} {key}" for key in range(1000)], request_id=f"other {number}"
        )
        server.client.call("QueryAndAddBatch", request)
    written = files.written()
    code, stderr = ended(dedup(programs, files, server.address, flag))
    assert code == 1, stderr
    assert "the server may have forgotten the requests of that run" in stderr
    assert (files.written(), files.state.exists()) == (written, True)
