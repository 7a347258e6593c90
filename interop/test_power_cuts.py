"""Promise 1 when the power is cut: what each durability says is kept, is kept, on a real file
system that loses all that was not put on stable storage.

`SEENSET_POWER_CUTS` is the number of cuts for each durability. Where the machine cannot do
this the tests fail; `SEENSET_WITHOUT_POWER_CUTS=1` leaves them out, and says so.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.ledger import Findings, Ledger
from support.load import Load
from support.programs import Programs
from support.server import KINDS, Server
from support.trace import Trace
from support.volume import OPT_OUT, Volume

CUTS = int(os.environ.get("SEENSET_POWER_CUTS") or 4)
# A volume lives through so many cuts, and what was acknowledged before the first is there
# after the last. Not all on one: the filter would outgrow its capacity.
CUTS_OF_A_VOLUME = 10
INTERVAL_SECONDS = 0.2
# What `interval` may lose beyond that: what was written while a sync that was due was under
# way. It is as long as a sync takes on the disk below, plus the clocks of two processes.
TOLERANCE_SECONDS = 0.3
# So small a rate that a key which was lost does not look seen by accident.
EXACT = ("--false-positive-rate=1e-9", "--store-interval=0")
MOMENTS = ("load", "load without stores", "start", "stop")
DURABILITIES = {
    "always": (["--durability=always"], 0.0),
    "interval": (
        ["--durability=interval", f"--sync-interval={INTERVAL_SECONDS}s"],
        INTERVAL_SECONDS + TOLERANCE_SECONDS,
    ),
}


@pytest.fixture(autouse=True)
def wanted() -> None:
    if os.environ.get(OPT_OUT):
        pytest.skip(f"no power is cut, for {OPT_OUT} is set")


@pytest.fixture
def volumes(tmp_path: Path) -> Iterator[list[Volume]]:
    """Where a test leaves its volume, so that it outlives the servers, which end with `start`:
    a test names this fixture first."""
    volumes: list[Volume] = []
    yield volumes
    for volume in volumes:
        volume.__exit__()


class Machine:
    """A disk, and the servers that work on it one after the other."""

    def __init__(
        self, volumes: list[Volume], start, tmp_path: Path, *flags: str, kind: str = "plain"
    ) -> None:
        while volumes:
            before = volumes.pop()
            before.__exit__()
            before.remove()
        directory = tmp_path / f"machine-{time.monotonic_ns()}"
        directory.mkdir()
        self.volume = Volume(directory).__enter__()
        volumes.append(self.volume)
        self.data_dir = self.volume.path / "data"
        self._start = start
        self._flags = (*EXACT, *KINDS[kind], *flags)
        self.ledger = Ledger()
        self.cut_at = 0.0

    def start(self, **options: object) -> Server:
        return self._start(*self._flags, data_dir=self.data_dir, **options)

    def cut(self) -> None:
        self.cut_at = time.monotonic()
        self.volume.cut()

    def cut_under_load(
        self, name: str, seconds: float, *, stores: bool = True, **options: object
    ) -> int:
        """Cuts the power of a busy server; how many calls had been refused."""
        patient = bool(options)
        server = self.start(**options)
        before = self.ledger.answers
        with Load(server, self.ledger, name, patient=patient, stores=stores) as load:
            until = time.monotonic() + 30
            while self.ledger.answers == before and time.monotonic() < until:
                time.sleep(0.01)
            # The moment is what the test is about, so this wait has no condition to await.
            time.sleep(seconds)
            load.end()
            self.cut()
            # An answer that is under way may still come, but counts no more: a sync that the
            # cut meets is told as done by some kernels, and is not.
            server.process.kill()
            server.process.wait(timeout=60)
        server.kill()
        assert self.ledger.answers > before, "nothing was answered: this cut proves nothing"
        return load.refusals

    def cut_after_a_crash(self, name: str, seconds: float, **options: object) -> None:
        """Kills a busy server, and cuts the power of the next one, which goes on where the
        first was: what the system had of it then may not be on the disk yet."""
        server = self.start(**options)
        with Load(server, self.ledger, name, patient=False, stores=False) as load:
            time.sleep(0.5)
            load.end()
            server.process.kill()
            server.process.wait(timeout=60)
        server.kill()
        server = self.start()
        time.sleep(seconds)
        self.cut()
        server.kill()

    def cut_while_starting(self, name: str, seconds: float) -> None:
        """Cuts the power, and again while a server reads what the first cut has left and opens
        its log. The first is what answers count from: there have been none since."""
        self.cut_under_load(name, 0.5, stores=False)
        self.volume.revive()
        timer = threading.Timer(seconds, self.volume.cut)
        timer.start()
        try:
            self.start().kill()
        except AssertionError as error:
            assert "the server ended" in str(error), error
        finally:
            timer.join()

    def cut_while_stopping(self, name: str, seconds: float) -> None:
        """Cuts the power while the last snapshots are written."""
        server = self.start()
        keys = [f"{name}/{number}" for number in range(20_000)]
        self.ledger.asked("default", keys)
        self.ledger.answered("default", keys, server.client.query_and_add_batch(keys))
        server.process.send_signal(signal.SIGTERM)
        time.sleep(seconds)
        self.cut()
        server.kill()

    def check(self, grace: float) -> Findings:
        """Power again: a server starts, and is asked for all that was promised."""
        self.volume.revive()
        torn_before = set(self.data_dir.glob("*.torn"))
        server = self.start()
        findings = self.ledger.check(server.client, self.cut_at, grace)
        assert server.stop() == 0
        # What was cut off is kept, and told.
        told = [entry for entry in server.log if "has been copied and cut" in str(entry)]
        torn = set(self.data_dir.glob("*.torn")) - torn_before
        assert len(torn) == len(told) <= 1, (torn, server.log)
        findings.torn = len(torn)
        return findings


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("durability", DURABILITIES)
def test_a_power_cut_takes_no_more_than_the_durability_says(
    volumes: list[Volume], start, tmp_path: Path, durability: str, kind: str
) -> None:
    """Cuts meet a busy server, one that is busy and never stores, so that all is up to the
    log, one that starts on what another cut has left, and one that stops."""
    flags, grace = DURABILITIES[durability]
    moments = random.Random(f"cuts {durability} {kind}")
    cuts = CUTS if kind == "plain" else max(CUTS // 2, 2)
    # So that few cuts of each kind of filter are of all kinds together.
    first = 2 * list(KINDS).index(kind)
    checked = lost = torn = 0
    oldest = 0.0
    for number in range(cuts):
        if number % CUTS_OF_A_VOLUME == 0:
            machine = Machine(volumes, start, tmp_path, *flags, kind=kind)
        moment = MOMENTS[(first + number) % len(MOMENTS)]
        if moment == "start":
            machine.cut_while_starting(f"start-{number}", moments.uniform(0, 0.1))
        elif moment == "stop":
            machine.cut_while_stopping(f"stop-{number}", moments.uniform(0, 0.1))
        else:
            seconds = moments.uniform(0.2, 1.2)
            machine.cut_under_load(f"cut-{number}", seconds, stores=moment == "load")
        findings = machine.check(grace)
        assert not findings.broken, (
            f"cut {number} ({moment}): {len(findings.broken)} promises are broken, "
            f"the first: {findings.broken[:5]}"
        )
        checked += findings.checked
        lost += findings.lost_before
        torn += findings.torn
        oldest = max(oldest, findings.oldest)
    print(
        f"{durability}, {kind}: {cuts} cuts, {checked} answers checked, {lost} keys lost, the oldest "
        f"{oldest:.3f} s before its cut, {torn} torn ends"
    )
    assert checked > 0
    assert durability == "interval" or lost == 0


@pytest.mark.parametrize("durability", DURABILITIES)
def test_a_power_cut_after_a_crash(
    volumes: list[Volume], start, programs: Programs, tmp_path: Path, durability: str
) -> None:
    """A server that starts relies on what the one before has written. It must not do so before
    it is on stable storage, or the log breaks off in the middle when the power is cut."""
    flags, grace = DURABILITIES[durability]
    machine = Machine(volumes, start, tmp_path, *flags)
    for number in range(max(CUTS // 4, 2)):
        options = {}
        if durability == "always":
            # A slow disk: the kill meets a batch that is written and not yet synced.
            slow = injected(programs, tmp_path, "fdatasync:delay_enter=50000")
            options = {"wrapper": slow}
        # At once, and when all that was written has been there for longer than may be lost.
        machine.cut_after_a_crash(f"crash-{number}", (0.05, grace + 0.3)[number % 2], **options)
        findings = machine.check(grace)
        assert not findings.broken, findings.broken[:5]


@pytest.mark.parametrize(("when", "stores"), [("7+7", True), ("40+", False)])
def test_a_failed_sync_is_never_relied_on(
    volumes: list[Volume], start, programs: Programs, tmp_path: Path, when: str, stores: bool
) -> None:
    """The disk fails every seventh sync of each thread, and then the power is cut: what the
    server acknowledges after a failure it has synced anew. Or all but the first: then it
    acknowledges nothing any more."""
    machine = Machine(volumes, start, tmp_path, "--durability=always")
    machine.start().kill()
    refusals = 0
    for number in range(max(CUTS // 8, 1)):
        wrapper = injected(programs, tmp_path, f"fdatasync:error=EIO:when={when}")
        name = f"sync-{number}"
        refusals += machine.cut_under_load(name, 1.0, stores=stores, wrapper=wrapper)
        findings = machine.check(0.0)
        assert not findings.broken, findings.broken[:5]
    assert refusals > 0, "no sync failed: this test proved nothing"


def injected(programs: Programs, tmp_path: Path, injection: str) -> list[Path | str]:
    call = injection.partition(":")[0]
    options = ["--seccomp-bpf", "-e", f"trace={call}", "-e", f"inject={injection}"]
    return Trace(tmp_path / "trace").wrapper(programs, *options)


@pytest.mark.parametrize("liar", ["no log", "a sync that comes late", "a sync that does nothing"])
def test_the_check_notices_what_is_lost(
    volumes: list[Volume], start, programs: Programs, tmp_path: Path, liar: str
) -> None:
    """The test of the test: a server that keeps less than it should is found out."""
    grace, options = 0.0, {}
    if liar == "no log":
        flags = ["--durability=snapshot"]
    elif liar == "a sync that comes late":
        flags = ["--durability=interval", "--sync-interval=60s"]
        grace = DURABILITIES["interval"][1]
    else:
        flags = ["--durability=always"]
        options = {"wrapper": injected(programs, tmp_path, "fdatasync:retval=0")}
    machine = Machine(volumes, start, tmp_path, *flags)
    # With syncs that work: the directory, the first log and the first manifest are there.
    assert machine.start().stop() == 0
    machine.cut_under_load("liar", 1.0, stores=False, **options)
    try:
        findings = machine.check(grace)
    except AssertionError as error:
        # Files that were never synced may also be damaged beyond a start.
        assert liar == "a sync that does nothing", error
        assert "the server ended" in str(error), error
    else:
        assert findings.lost_before > 0
        assert findings.broken
