"""The image and the compose file as users run them, with Podman in the place of Docker.

`.ci/run` has built the image from the Dockerfile; nothing is pulled or built here. A container has
the user, the read-only root, the capabilities and the memory limit (a real cgroup) of the compose
file.
"""

from __future__ import annotations

import json
import re
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.programs import Programs, run

ROOT = Path(__file__).parents[1]
DEADLINE_SECONDS = 120
# `mem_limit` of the compose file, and the 80 % of it that the server takes by default.
MEMORY_LIMIT = 2 << 30
BUDGET = MEMORY_LIMIT * 8 // 10


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Compose:
    """The compose file as a project of its own, on a free port."""

    def __init__(self, programs: Programs, project: str) -> None:
        self.programs = programs
        self.port = free_port()
        self.project = project
        self.container = f"{project}_seenset_1"

    def __call__(self, *arguments: str, code: int = 0) -> None:
        flags = ["--in-pod=false", f"--project-name={self.project}"]
        flags.append(f"--file={ROOT / 'docker-compose.yml'}")
        command = [self.programs.podman_compose, *flags, *arguments]
        result = run(*command, deadline=DEADLINE_SECONDS, SEENSET_PORT=str(self.port))
        assert result.returncode == code, result.stdout + result.stderr

    def podman(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return run(self.programs.podman, *arguments, deadline=DEADLINE_SECONDS)

    def inside(self, *command: str) -> subprocess.CompletedProcess[str]:
        return self.podman("exec", self.container, *command)

    def state(self) -> dict[str, object]:
        result = self.podman("container", "inspect", self.container)
        assert result.returncode == 0, result.stderr
        [container] = json.loads(result.stdout)
        return dict(container["State"])

    def wait_until_healthy(self) -> None:
        """Asks the health check of the image itself, as Docker does."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while (check := self.podman("healthcheck", "run", self.container)).returncode:
            assert time.monotonic() < deadline, f"{check.stdout}{check.stderr}{self.logs()}"
            assert self.state()["Running"], self.logs()
            time.sleep(0.2)

    def logs(self) -> str:
        result = self.podman("logs", self.container)
        return result.stdout + result.stderr

    def seenset(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """The command line of this machine, by way of the published port."""
        return run(self.programs.cli, f"--server=http://127.0.0.1:{self.port}", *arguments)


@pytest.fixture
def compose(programs: Programs, tmp_path: Path) -> Iterator[Compose]:
    compose = Compose(programs, f"seenset-{free_port()}")
    try:
        compose("up", "--detach", "--no-build")
        compose.wait_until_healthy()
        yield compose
    finally:
        compose("down", "--volumes")


def test_the_container_may_do_no_more_than_it_needs(compose: Compose) -> None:
    assert compose.inside("id", "-u").stdout == "10001\n"
    assert compose.inside("id", "-g").stdout == "10001\n"
    written = compose.inside("touch", "/usr/local/bin/x")
    assert written.returncode != 0
    assert "Read-only file system" in written.stderr
    assert compose.inside("touch", "/data/x").returncode == 0
    status = compose.inside("cat", "/proc/1/status").stdout
    lines = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert lines["Name"] == "seenset-server"
    assert {lines[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
    assert lines["NoNewPrivs"] == "1"


def test_the_server_sees_the_memory_limit(compose: Compose) -> None:
    names = ("memory.max", "memory/memory.limit_in_bytes")
    limits = [compose.inside("cat", f"/sys/fs/cgroup/{name}").stdout for name in names]
    assert f"{MEMORY_LIMIT}\n" in limits
    create = ("filter", "create", "--capacity=1000000")
    large = compose.seenset(*create, f"--bit-count={8 * MEMORY_LIMIT}", "large")
    assert large.returncode == 1
    budget = re.search(r"the budget of (\d+) \(--max-memory\)", large.stderr)
    assert budget, large.stderr
    assert abs(int(budget[1]) - BUDGET) < 4096
    small = compose.seenset(*create, f"--bit-count={8 * MEMORY_LIMIT // 2}", "small")
    assert small.returncode == 0, small.stderr


def test_a_key_outlives_the_container_on_its_volume(compose: Compose) -> None:
    assert compose.seenset("query-and-add", "a").stdout == "new\ta\n"
    assert compose.seenset("query-and-add", "a").stdout == "seen\ta\n"
    compose("stop")
    state = compose.state()
    assert (state["Running"], state["ExitCode"], state["OOMKilled"]) == (False, 0, False)
    compose("down")
    compose("up", "--detach", "--no-build")
    compose.wait_until_healthy()
    assert compose.seenset("query-and-add", "a", "b").stdout == "seen\ta\nnew\tb\n"


def test_the_health_check_fails_while_the_server_does_not_answer(compose: Compose) -> None:
    assert compose.podman("kill", "--signal=STOP", compose.container).returncode == 0
    check = compose.podman("healthcheck", "run", compose.container)
    assert check.returncode == 1, check.stdout + check.stderr
    assert compose.podman("kill", "--signal=CONT", compose.container).returncode == 0
    compose.wait_until_healthy()
