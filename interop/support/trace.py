"""The system calls of a server, as strace writes them."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from .programs import Programs


@dataclass(frozen=True)
class Occurrence:
    """The nth time that a thread makes a call on a file, the directory itself being `.`."""

    call: str
    file: str
    number: int

    @property
    def kind(self) -> tuple[str, str]:
        """The call and what the file is for: files come and go, and their numbers with them."""
        return self.call, re.sub(r"[0-9a-f]{16}", "NUMBER", self.file)

    def __str__(self) -> str:
        return f"{self.call} {self.number} of {self.file}"


class Trace:
    """A file that strace writes to: with the path of each descriptor (`-y`)."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._taken = 0

    def wrapper(self, programs: Programs, *options: Path | str) -> list[Path | str]:
        """What a server's command line begins with."""
        # -D: the traced server, not strace, is the process that was started, so that its id
        # is the server's.
        return [programs.strace, "-D", "-f", "-y", *options, "-o", self.file]

    def take(self) -> list[str]:
        """The calls that ended since this was last called, in their order."""
        return [call for _, call in self._take()]

    def take_occurrences(self, directory: Path) -> set[Occurrence]:
        """As [take], but each call on a file in a directory by itself. Counts begin anew."""
        made: Counter[tuple[str, str, str]] = Counter()
        occurrences = set()
        for thread, call in self._take():
            name, _, arguments = call.partition("(")
            # A path in a rename comes up by its old name.
            found = re.search(rf'[<"]{re.escape(str(directory))}(?:/([^/>" ]+))?[>"]', arguments)
            if found is None or not name.isidentifier():
                continue
            file = found[1] or "."
            made[thread, name, file] += 1
            occurrences.add(Occurrence(name, file, made[thread, name, file]))
        return occurrences

    def _take(self) -> list[tuple[str, str]]:
        text = self.file.read_text(errors="replace")
        calls, rest = [], text[self._taken :]
        self._taken = len(text)
        unfinished: dict[str, str] = {}
        for line in rest.splitlines():
            thread, _, call = line.partition(" ")
            call = call.strip()
            if call.endswith("<unfinished ...>"):
                unfinished[thread] = call.removesuffix("<unfinished ...>").rstrip()
            elif resumed := re.match(r"<\.\.\. \w+ resumed>(.*)", call):
                calls.append((thread, unfinished.pop(thread, "") + resumed[1]))
            else:
                calls.append((thread, call))
        return calls
