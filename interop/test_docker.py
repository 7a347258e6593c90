"""The Dockerfile, as far as it goes without an engine."""

from __future__ import annotations

import shutil
from pathlib import Path

from support.programs import run

ROOT = Path(__file__).parents[1]


def instructions(dockerfile: str) -> list[list[str]]:
    """The instructions of the first stage behind its FROM, each as a word and the rest."""
    lines = [line for line in dockerfile.splitlines() if not line.startswith("#")]
    whole = "\n".join(lines).replace("\\\n", " ").splitlines()
    found = [line.split(maxsplit=1) for line in whole if line.strip()]
    ends = [index for index, (word, _) in enumerate(found) if word == "FROM"]
    return found[ends[0] + 1 : ends[1]]


def test_the_layer_of_dependencies_has_every_manifest(tmp_path: Path) -> None:
    """Cargo reads the manifests of all members of the workspace, needed or not."""
    prepared = False
    for word, rest in instructions((ROOT / "Dockerfile").read_text()):
        if word == "COPY":
            *sources, target = rest.split()
            for source in sources:
                (tmp_path / target).mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / source, tmp_path / target)
        elif word == "RUN":
            before, found, _ = rest.partition("&& cargo build")
            assert found, rest
            result = run("sh", "-c", before, cwd=tmp_path)
            assert result.returncode == 0, result.stderr
            prepared = True
    assert prepared
    metadata = ["metadata", "--locked", "--no-deps", "--format-version=1"]
    result = run("cargo", *metadata, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
