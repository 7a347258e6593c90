"""The source keeps its layers, has no circles of files, and speaks plain English."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# What each room of the server may import, see "Who may import whom" in ARCHITECTURE.md. Every room
# may import `sync` (locks and atomics), `planted` (bugs for tests) and `filter`.
ROOMS = {
    "store": set(),
    "engine": {"store"},
    "grpc": {"engine"},
    "cores": {"connections"},
    "connections": {"listeners"},
    "listeners": {"config"},
    "net": {"grpc", "cores"},
    # The limits that flags set.
    "config": {"engine", "grpc"},
    "telemetry": {"engine", "config", "connections"},
    "verify": {"config", "engine", "store"},
}

# The rooms of the engine. Each may import those before it.
ENGINE = (
    "budget clock per_thread error background commit call filter registry data_path catalog "
    "upkeep persist"
).split()

Module = tuple[str, ...]


def items(body: str) -> Iterator[str]:
    """The parts of the body of braces, which can have braces themselves."""
    depth, part = 0, ""
    for character in body + ",":
        depth += {"{": 1, "}": -1}.get(character, 0)
        if character == "," and depth == 0:
            if part.strip():
                yield part.strip()
            part = ""
        else:
            part += character


def paths(use: str, prefix: Module = ()) -> Iterator[Module]:
    for item in items(use):
        path, braces, body = item.partition("::{")
        path = (*prefix, *path.split(" as ")[0].strip().split("::"))
        if braces:
            yield from paths(body.removesuffix("}"), path)
        else:
            yield path


def imports(text: str) -> Iterator[Module]:
    """The paths from `crate`, `super` and `self` that a file names, without those of its tests."""
    text = re.sub(r"//[^\n]*", "", text)
    text = re.sub(r"#\[cfg\(test\)\]\s*(?:pub\S* )?mod \w+ \{.*?\n\}", "", text, flags=re.DOTALL)
    for use in re.findall(r"\buse\s+((?:crate|super|self)\b[^;]*);", text):
        yield from paths(use)
    for path in re.findall(r"\bcrate(?:::\w+)+", re.sub(r"\buse\s[^;]*;", "", text)):
        yield tuple(path.split("::"))


def graph(package: str) -> dict[Module, set[Module]]:
    """Which files of a package import which."""
    source = ROOT / package / "src"
    files = {}
    for file in source.rglob("*.rs"):
        module = file.relative_to(source).with_suffix("").parts
        if "tests" not in module and module[-1] not in ("testing", "main", "fuzzing"):
            files[module[:-1] if module[-1] in ("mod", "lib") else module] = file
    edges: dict[Module, set[Module]] = {module: set() for module in files}
    for module, file in files.items():
        for first, *rest in imports(file.read_text()):
            path = list(module) if first != "crate" else []
            if first == "super":
                path.pop()
            while rest and rest[0] == "super":
                path.pop()
                rest.pop(0)
            path += rest
            while tuple(path) not in files:
                path.pop()
            if tuple(path) != module:
                edges[module].add(tuple(path))
    return edges


def circles(edges: dict[Module, set[Module]]) -> list[set[str]]:
    """The files that reach each other. A file and those in its folder count as one room."""

    def is_within(one: Module, other: Module) -> bool:
        return one[: len(other)] == other or other[: len(one)] == one

    reach = {one: {to for to in tos if not is_within(one, to)} for one, tos in edges.items()}
    for via in reach:
        for one in reach:
            if via in reach[one]:
                reach[one] |= reach[via]
    found = {frozenset(to for to in reach[one] if one in reach[to]) for one in reach}
    return [{"::".join(module) for module in circle} for circle in found if len(circle) > 1]


def test_no_room_imports_one_above_it() -> None:
    found = {}
    for module, tos in graph("server").items():
        for to in tos:
            if module and to and module[0] != to[0] and to[0] not in ("sync", "planted"):
                found.setdefault(module[0], set()).add(to[0])
    # `server` puts everything together.
    found.pop("server")
    assert {room for room, tos in found.items() if tos - ROOMS[room]} == set(), found
    for room in ("engine", "grpc", "net"):
        assert found[room], "the imports are not found any more"


def test_the_rooms_of_the_engine_import_downwards() -> None:
    found = set()
    for module, tos in graph("server").items():
        for to in tos:
            if len(module) > 1 and len(to) > 1 and module[0] == to[0] == "engine":
                found.add((module[1], to[1]))
    assert len(found) > len(ENGINE), "the imports are not found any more"
    assert {room for arrow in found for room in arrow} == set(ENGINE)
    assert [(one, to) for one, to in found if ENGINE.index(to) > ENGINE.index(one)] == []
    # An import of a name that mod.rs re-exports would hide the room that the name comes from.
    for file in (ROOT / "server/src/engine").rglob("*.rs"):
        if "tests" not in (*file.parts, file.stem):
            for path in imports(file.read_text()):
                if path[:2] == ("crate", "engine") and len(path) > 2:
                    assert path[2] in {*ENGINE, "Engine", "Settings"}, f"{file}: {path}"


@pytest.mark.parametrize("package", ["server", "filter", "client", "cli"])
def test_no_files_import_each_other(package: str) -> None:
    found = circles(graph(package))
    assert found == []


def test_a_comment_begins_with_what_it_is_about() -> None:
    """A doc comment names the category first: "The limit of …", "Returns …", not "What …"."""
    files = [*ROOT.glob("*/**/*.rs"), *ROOT.glob("proto/**/*.proto")]
    files = [file for file in files if "target" not in file.relative_to(ROOT).parts]
    assert len(files) > 400
    begins = re.compile(r"^\s*//[/!]* (?:What|How|Those|Whoever) .*", re.MULTILINE)
    found = [
        f"{file.relative_to(ROOT)}: {comment.strip()}"
        for file in files
        for comment in begins.findall(file.read_text())
    ]
    assert found == []


def test_words_are_spelt_right() -> None:
    typos = Path(sys.executable).with_name("typos")
    run = subprocess.run([typos, "--format=brief"], cwd=ROOT, capture_output=True, text=True)
    assert (run.returncode, run.stdout) == (0, ""), run.stdout + run.stderr
