"""What a server has told its callers, held against what it knows after a crash."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from .client import Client

CHUNK = 20_000


class Stage(Enum):
    """What is known of a filter: the last two are certain, the first two are in doubt."""

    CREATING = auto()
    DELETING = auto()
    THERE = auto()
    GONE = auto()


@dataclass
class Page:
    """What was said about one filter."""

    stage: Stage
    # Sent, with or without an answer.
    asked: set[str] = field(default_factory=set)
    # Told as seen, or as new, or as added, and when for the first time. Each answer makes
    # the same promise: from here on the key is seen.
    answered: dict[str, float] = field(default_factory=dict)
    # Told as new, once for each time.
    won: list[str] = field(default_factory=list)


@dataclass
class Findings:
    """What came of a check."""

    broken: list[str] = field(default_factory=list)
    checked: int = 0
    lost: int = 0
    # Of those, the ones whose answer was there before the cut began, and for how long the
    # oldest of them had been.
    lost_before: int = 0
    oldest: float = 0.0
    # Logs whose end was cut off.
    torn: int = 0


class Ledger:
    """What callers in many threads were told, filter by filter."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pages: dict[str, Page] = {"default": Page(Stage.THERE)}

    def stage(self, filter: str, stage: Stage) -> None:
        """Before a call that makes or removes a filter, and after its answer."""
        with self._lock:
            if filter in self._pages:
                self._pages[filter].stage = stage
            else:
                self._pages[filter] = Page(stage)

    def asked(self, filter: str, keys: Sequence[str]) -> None:
        """Before a call that adds keys."""
        with self._lock:
            self._pages[filter].asked.update(keys)

    def answered(self, filter: str, keys: Sequence[str], seen: Sequence[bool] | None) -> None:
        """After its answer; `None` for a call that does not tell what it has seen."""
        now = time.monotonic()
        with self._lock:
            page = self._pages[filter]
            # One that has acknowledged a key is there, whatever was heard of its making.
            if page.stage is Stage.CREATING:
                page.stage = Stage.THERE
            for key in keys:
                page.answered.setdefault(key, now)
            if seen is not None:
                page.won += [key for key, seen in zip(keys, seen, strict=True) if not seen]

    def certain(self) -> set[str]:
        """The filters that are there for certain."""
        with self._lock:
            return {name for name, page in self._pages.items() if page.stage is Stage.THERE}

    @property
    def answers(self) -> int:
        with self._lock:
            return sum(len(page.answered) for page in self._pages.values())

    def check(self, client: Client, cut: float, grace: float) -> Findings:
        """Asks a server that came back after a cut. What was answered no longer than `grace`
        before the cut began may be lost, and is then as if it had never been said. So may what
        was answered later: nobody hears from a machine without power."""
        findings = Findings()
        there = {filter.name for filter in client.list_filters(page_size=1000).filters}
        for name, page in list(self._pages.items()):
            if (page.stage, name in there) in ((Stage.THERE, False), (Stage.GONE, True)):
                findings.broken.append(f"filter {name}: acknowledged as {page.stage.name}")
            if name not in there:
                del self._pages[name]
                continue
            page.stage = Stage.THERE
            self._check_keys(client, name, page, findings, cut - grace, cut)
        return findings

    def _check_keys(
        self,
        client: Client,
        name: str,
        page: Page,
        findings: Findings,
        since: float,
        cut: float,
    ) -> None:
        lost = []
        for keys in _chunks(sorted(page.answered)):
            seen = client.query_batch(keys, filter=name)
            lost += [key for key, seen in zip(keys, seen, strict=True) if not seen]
        findings.checked += len(page.answered)
        findings.lost += len(lost)
        for key in lost:
            age = cut - page.answered.pop(key)
            findings.lost_before += age >= 0
            findings.oldest = max(findings.oldest, age)
            if cut - age <= since:
                findings.broken.append(
                    f"filter {name}: {key} is lost, told {age:.3f} s before the cut"
                )
        forgotten = set(lost)
        page.won = [key for key in page.won if key not in forgotten]
        # Whoever had no answer asks again, and may be told that the key is new: once.
        for keys in _chunks(sorted(page.asked - page.answered.keys())):
            self.answered(name, keys, client.query_and_add_batch(keys, filter=name))
        for key, times in Counter(page.won).items():
            if times > 1:
                findings.broken.append(f"filter {name}: {key} has {times} winners")


def _chunks(keys: list[str]) -> list[list[str]]:
    return [keys[first : first + CHUNK] for first in range(0, len(keys), CHUNK)]
