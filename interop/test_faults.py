"""What a disk that fails does to the promises: nothing is acknowledged that is not kept, no
call hangs, queries are answered meanwhile, and keys are taken again once the fault is gone.

Which system calls there are is learned from a run of the scenario without faults, so nothing
here knows how the files are written. Without `SEENSET_FAULTS=all` a fault of each kind is
tried, under `interval` on the files of the log alone; with it every occurrence of every call, and
each also for good.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import pytest

from support.client import NOT_SERVING, SERVING
from support.contract import Contract
from support.faults import NOTHING_WRITTEN, Fault, Gone, hits, learning, standing
from support.ledger import Ledger
from support.programs import Programs
from support.scenario import FLAGS, Scenario, check, copy, ledger_of_prepared, prepare
from support.server import Server
from support.trace import Occurrence, Trace

ALL = os.environ.get("SEENSET_FAULTS") == "all"
ERRORS = ("EIO", "ENOSPC", "EINTR", NOTHING_WRITTEN)
# What the system has of the log before the disk has it.
TAIL = "log.tail"
DEDUP = "seenset.v1.DedupService"
# Those that change something. The others are made to start, not while a server runs.
WRITING = ("openat", "pwrite64", "write", "fsync", "fdatasync", "fallocate", "rename", "unlink")


@dataclass
class Laboratory:
    """A data directory to copy, and what is called on its files."""

    programs: Programs
    contract: Contract
    durability: str
    directory: Path
    prepared: Path
    running: set[Occurrence] = field(default_factory=set)
    stopping: set[Occurrence] = field(default_factory=set)

    def server(self, data_dir: Path, *wrapper: Path | str) -> Server:
        flags = (*FLAGS, f"--durability={self.durability}")
        return Server(self.programs.server, self.contract, data_dir, *flags, wrapper=wrapper)

    def scenario(self, ledger: Ledger, name: str) -> Scenario:
        return Scenario(ledger, name, pauses=self.durability == "interval")

    def data_dir(self, name: str) -> Path:
        run = self.directory / name
        run.mkdir()
        return copy(self.prepared, run / "data")


@pytest.fixture(scope="module", params=["always", "interval"])
def laboratory(
    request: pytest.FixtureRequest,
    programs: Programs,
    contract: Contract,
    tmp_path_factory: pytest.TempPathFactory,
) -> Laboratory:
    """Learns what is called until the last step, and what on the way to a stop."""
    directory = tmp_path_factory.mktemp("faults")
    prepared = directory / "prepared"
    laboratory = Laboratory(programs, contract, request.param, directory, prepared)
    with laboratory.server(prepared) as server:
        prepare(server)

    data_dir = laboratory.data_dir("learning")
    trace = Trace(data_dir.with_name("trace"))
    ledger = ledger_of_prepared()
    scenario = laboratory.scenario(ledger, "steps")
    with laboratory.server(data_dir, *learning(programs, trace)) as server:
        scenario.run(server)
        assert scenario.refusals == 0
        server.kill()
    laboratory.running = trace.take_occurrences(data_dir)
    with laboratory.server(data_dir) as server:
        assert check(server, ledger) == []

    data_dir = laboratory.data_dir("learning to stop")
    trace = Trace(data_dir.with_name("trace"))
    with laboratory.server(data_dir, *learning(programs, trace)) as server:
        server.client.add("a")
        assert server.stop() == 0
    laboratory.stopping = trace.take_occurrences(data_dir)
    assert {occurrence.call for occurrence in laboratory.running} > {"fdatasync", "fsync"}
    files = {occurrence.file for occurrence in laboratory.running}
    assert (TAIL in files) == (laboratory.durability == "interval")
    return laboratory


def is_of_log(occurrence: Occurrence) -> bool:
    return occurrence.file == TAIL or occurrence.file.endswith(".log")


def chosen(laboratory: Laboratory, occurrences: set[Occurrence]) -> Iterator[Fault]:
    """One fault of each kind, or all there are."""
    known: set[object] = set()
    if laboratory.durability == "interval" and not ALL:
        # All else is done as it is with `always`. Not the first of each, by which a file is
        # made, but one of those that follow.
        of_file: dict[tuple[str, str], list[Occurrence]] = {}
        for one in sorted(filter(is_of_log, occurrences), key=lambda o: o.number):
            of_file.setdefault((one.call, one.file), []).append(one)
        occurrences = {all_of[len(all_of) // 2] for all_of in of_file.values()}
    for occurrence in sorted(occurrences, key=lambda o: (o.call, o.file, o.number)):
        for error in ERRORS:
            for for_good in (False, True):
                if error == NOTHING_WRITTEN and occurrence.call not in ("write", "pwrite64"):
                    continue
                # Each kind of call and file fails once. That the errors differ, and that
                # they stay, is tried once for each call, and with the tail by itself.
                by_file = (error == "EIO" and not for_good) or occurrence.file == TAIL
                kind = occurrence.kind if by_file else occurrence.call
                if ALL or (kind, error, for_good) not in known:
                    known.add((kind, error, for_good))
                    yield Fault(occurrence, error, for_good)


def tried(laboratory: Laboratory, number: int, fault: Fault, stop: bool) -> tuple[list[str], bool]:
    """One run with a fault; what is wrong, and whether the fault came about."""
    data_dir = laboratory.data_dir(f"{'stop' if stop else 'run'}-{number}")
    trace = Trace(data_dir.with_name("trace"))
    ledger = ledger_of_prepared()
    scenario = laboratory.scenario(ledger, "steps")
    wrapper = fault.wrapper(laboratory.programs, trace, data_dir)
    log: list[object] = []
    try:
        with laboratory.server(data_dir, *wrapper) as server:
            log = server.log
            try:
                if stop:
                    server.client.add("a")
                    ledger.answered("default", ["a"], None)
                    codes = (0,) if fault.is_made_good else (0, 1)
                    assert server.stop(deadline=40) in codes, "the stop failed otherwise"
                else:
                    gone = None if fault.for_good else Gone(server.process.pid, trace)
                    scenario.run(server, gone)
            except grpc.RpcError as error:
                if not stop:
                    scenario.findings.append(f"a call hangs: {error}")
    except AssertionError as error:
        # A start that is refused has told nobody anything. One that hangs is another matter.
        log = [str(error)]
        if "the server ended" not in str(error) or fault.is_made_good:
            scenario.findings.append(str(error))
    findings = scenario.findings
    if fault.is_made_good and scenario.refusals:
        findings.append("refused for what was to be tried again")
    if "panicked" in str(log):
        findings.append(f"a panic: {log}")
    try:
        with laboratory.server(data_dir) as server:
            findings += check(server, ledger)
    except AssertionError as error:
        findings.append(f"no start without the fault: {error}")
    hit = hits(trace) > 0
    if not findings:
        shutil.rmtree(data_dir.parent)
    return [f"{fault}: {finding} (see {data_dir.parent})" for finding in findings], hit


@pytest.mark.parametrize("stop", [False, True], ids=["running", "stopping"])
def test_a_call_that_fails(laboratory: Laboratory, stop: bool) -> None:
    findings: list[str] = []
    occurrences = laboratory.running
    if stop:
        # The rest has been tried with a server that runs.
        kinds = {occurrence.kind for occurrence in laboratory.running}
        new = {one for one in laboratory.stopping if one.kind not in kinds}
        last = {one for one in laboratory.stopping if "snapshot" in one.file or "MANI" in one.file}
        if laboratory.durability == "interval":
            # What the system alone has comes to the disk with the stop, by the last of these.
            log = [one for one in laboratory.stopping if is_of_log(one)]
            log = [one for one in log if one.call in ("pwrite64", "fdatasync")]
            log.sort(key=lambda one: (one.file, one.number))
            last |= set(log if ALL else {one.kind: one for one in log}.values())
        occurrences = new | last
    met: dict[str, bool] = {}
    faults = list(chosen(laboratory, occurrences))
    for number, fault in enumerate(faults):
        wrong, hit = tried(laboratory, number, fault, stop)
        findings += wrong
        call = fault.occurrence.call
        met[call] = met.get(call, False) or hit
    print(f"{len(faults)} faults, {len(occurrences)} occurrences, calls: {sorted(met)}")
    assert not findings, "\n".join(findings)
    assert met and all(met.values()), f"some calls never failed, which proves nothing: {met}"


def not_as_expected(server: Server, expected: dict[str, int]) -> list[str]:
    """What health says that it should not, for longer than a moment."""
    settled = server.client.settled_health
    found = {service: settled(status, service) for service, status in expected.items()}
    return [] if found == expected else [f"health says {found}, not {expected}"]


@pytest.mark.parametrize("error", ["EIO", "ENOSPC"])
def test_a_fault_that_stands_and_goes(laboratory: Laboratory, error: str) -> None:
    """On all files, beginning while the server runs: what the disk does when it is full, or
    when its cable is out. Then the cable is in again."""
    learned = {one.call for one in laboratory.running if one.file != "LOCK"}
    learned &= set(WRITING)
    sets = [{call} for call in sorted(learned)] + [learned]
    files = {occurrence.file for occurrence in laboratory.running}
    findings: list[str] = []
    met: set[str] = set()
    for number, calls in enumerate(sets):
        data_dir = laboratory.data_dir(f"{error}-{number}")
        trace = Trace(data_dir.with_name("trace"))
        ledger = ledger_of_prepared()
        during, after = (laboratory.scenario(ledger, name) for name in ("during", "after"))
        with laboratory.server(data_dir) as server:
            fault = standing(
                laboratory.programs, trace, server.process.pid, data_dir, calls, error, files
            )
            try:
                with fault:
                    during.run(server)
                    if calls == learned:
                        during.findings += not_as_expected(server, {"": SERVING, DEDUP: NOT_SERVING})
                after.run(server, lambda: None)
                after.findings += not_as_expected(server, {"": SERVING, DEDUP: SERVING})
            except grpc.RpcError as hanging:
                during.findings.append(f"a call hangs: {hanging}")
            if "panicked" in str(server.log):
                during.findings.append(f"a panic: {server.log}")
        wrong = during.findings + after.findings
        with laboratory.server(data_dir) as server:
            wrong += check(server, ledger)
        if hits(trace):
            met |= calls
        if hits(trace) and calls - {"unlink", "fallocate"} and not during.refusals:
            wrong.append("nothing was refused")
        findings += [f"{error} of {sorted(calls)}: {one} (see {data_dir.parent})" for one in wrong]
        if not wrong:
            shutil.rmtree(data_dir.parent)
    print(f"{error}: {sorted(met)} failed")
    assert not findings, "\n".join(findings)
    assert met >= {"openat", "fsync", "fdatasync"}, "too little failed to prove anything"
