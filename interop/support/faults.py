"""System calls that fail, on the files of one data directory alone."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from .programs import Programs, environment
from .trace import Occurrence, Trace

# All by which files are opened, read, written, made certain, renamed and removed.
CALLS = (
    "open,openat,read,pread64,write,pwrite64,fsync,fdatasync,fallocate,ftruncate,"
    "rename,renameat,renameat2,unlink,unlinkat,getdents64,flock"
)
# What a call says that has written nothing of what it was given: the shortest of short writes.
# One that wrote a part cannot be feigned by strace, for nothing would be written.
NOTHING_WRITTEN = "nothing written"
ATTACH_SECONDS = 20
# Files that a scenario has not come to, but a server that tries again may.
NUMBERS_AHEAD = 24


@dataclass(frozen=True)
class Fault:
    """One occurrence of a call fails, and with `for_good` all that follow on that file."""

    occurrence: Occurrence
    error: str
    for_good: bool = False

    def wrapper(self, programs: Programs, trace: Trace, directory: Path) -> list[Path | str]:
        call, number = self.occurrence.call, self.occurrence.number
        when = f"{number}+" if self.for_good else str(number)
        return trace.wrapper(
            programs,
            *_only([directory / self.occurrence.file]),
            *("-e", f"trace={call}"),
            *("-e", f"inject={call}:{self._answer}:when={when}"),
        )

    @property
    def _answer(self) -> str:
        return "retval=0" if self.error == NOTHING_WRITTEN else f"error={self.error}"

    @property
    def is_made_good(self) -> bool:
        """Whether nobody is to notice: what a signal has interrupted is tried again."""
        return self.error == "EINTR" and not self.for_good

    def __str__(self) -> str:
        return f"{self.error} {'from' if self.for_good else 'at'} {self.occurrence}"


class Gone:
    """Ends a fault that has come about once. strace counts the calls of each thread by itself,
    so without this it would come back in the next thread that does the same."""

    def __init__(self, process: int, trace: Trace) -> None:
        self._process = process
        self._trace = trace
        self._is_gone = False

    def __call__(self) -> None:
        if self._is_gone or hits(self._trace) == 0:
            return
        self._is_gone = True
        # Those who are traced go on when strace is no more.
        tracer = _tracer(Path(f"/proc/{self._process}"))
        if tracer != 0:
            os.kill(tracer, signal.SIGKILL)
        until = time.monotonic() + ATTACH_SECONDS
        while _tracer(Path(f"/proc/{self._process}")) != 0:
            assert time.monotonic() < until, "strace does not end"
            time.sleep(0.005)


def learning(programs: Programs, trace: Trace) -> list[Path | str]:
    """Writes all calls down; none fails."""
    # `?`: not every architecture has each of them.
    calls = ",".join(f"?{call}" for call in CALLS.split(","))
    return trace.wrapper(programs, "--seccomp-bpf", "-e", f"trace={calls}")


def hits(trace: Trace) -> int:
    """How many calls have failed as they were to."""
    return trace.file.read_text(errors="replace").count("(INJECTED)")


@contextmanager
def standing(
    programs: Programs,
    trace: Trace,
    process: int,
    directory: Path,
    calls: Iterable[str],
    error: str,
    files: Iterable[str],
) -> Iterator[None]:
    """Calls on all files of a directory fail, in a server that runs, until the block ends."""
    names = ",".join(calls)
    paths = [directory, *(directory / file for file in _and_ahead(files))]
    command = [
        programs.strace,
        *("-f", "-y", "-p", process, *_only(paths), "-e", f"trace={names}"),
        *("-e", f"inject={names}:error={error}", "-o", trace.file),
    ]
    said = trace.file.with_suffix(".said")
    with said.open("w") as to:
        strace = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            stdout=to,
            stderr=to,
            env=environment(),
        )
    try:
        _await_attached(strace, process, said)
        yield
    finally:
        # It lets the server go on without it.
        strace.send_signal(signal.SIGINT)
        try:
            strace.wait(timeout=ATTACH_SECONDS)
        except subprocess.TimeoutExpired:
            strace.kill()
            strace.wait()
            raise


def _await_attached(strace: subprocess.Popen, process: int, said: Path) -> None:
    until = time.monotonic() + ATTACH_SECONDS
    while True:
        tasks = list(Path(f"/proc/{process}/task").iterdir())
        if all(_tracer(task) != 0 for task in tasks):
            return
        assert strace.poll() is None, f"strace cannot attach: {said.read_text()}"
        assert time.monotonic() < until, f"strace does not attach: {said.read_text()}"
        time.sleep(0.01)


def _tracer(task: Path) -> int:
    """Who traces a process or a thread; 0 if nobody does."""
    try:
        status = (task / "status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        # It has ended meanwhile.
        return 0
    found = re.search(r"TracerPid:\s*(\d+)", status)
    return int(found[1]) if found else 0


def _only(paths: Iterable[Path]) -> list[Path | str]:
    return [part for path in paths for part in ("-P", path)]


def _and_ahead(files: Iterable[str]) -> set[str]:
    """The files, and those of the same kinds with the numbers that come next."""
    all_files = set(files) - {"."}
    highest: dict[tuple[str, str], int] = {}
    for file in all_files:
        if found := re.fullmatch(r"(.*?)([0-9a-f]{16})(.*)", file):
            kind = (found[1], found[3])
            highest[kind] = max(highest.get(kind, 0), int(found[2], 16))
    top = max(highest.values(), default=0)
    for before, after in highest:
        all_files |= {f"{before}{number:016x}{after}" for number in range(1, top + NUMBERS_AHEAD)}
    return all_files
