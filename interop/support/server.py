"""A server of its own for each test: started, watched, ended."""

from __future__ import annotations

import json
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .client import Client
from .contract import Contract
from .programs import environment

START_SECONDS = 60
STOP_SECONDS = 60
# A default filter that costs a test nothing.
SMALL = ("--capacity", "100000", "--false-positive-rate", "0.001")
# What makes the default filter of each kind, and of Guava's layout, with room for half a million keys.
KINDS = {
    "plain": ("--capacity=500000", "--kind=plain"),
    "counting": ("--capacity=500000", "--kind=counting"),
    "aging": ("--capacity=500000", "--kind=aging", "--max-age=30days"),
    "scaling": ("--capacity=2000",),
    "guava": ("--capacity=500000", "--layout=guava"),
}


class Server:
    """A process of `seenset-server` on a free loopback port.

    The process ends with the `with` block, by its own id, whatever the test came to.
    """

    def __init__(
        self,
        program: Path,
        contract: Contract,
        data_dir: Path,
        *flags: str,
        wrapper: Sequence[Path | str] = (),
        listen: str = "127.0.0.1:0",
    ) -> None:
        self.data_dir = data_dir
        self.contract = contract
        self.started = time.monotonic()
        self.process = subprocess.Popen(
            [
                *map(str, wrapper),
                str(program),
                f"--listen={listen}",
                "--log-format=json",
                f"--data-dir={data_dir}",
                *flags,
            ],
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.log: list[dict[str, Any]] = []
        self._lines: queue.Queue[dict[str, Any] | None] = queue.Queue()
        # Read to the end, or the server would wait for room in the pipe.
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._clients: list[Client] = []
        try:
            self.address: str = self._await_address()
            self.client = self.connect()
        except BaseException:
            self.kill()
            raise

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def connect(self, **options: Any) -> Client:
        """One more connection; closed with the server."""
        client = Client(self.contract, self.address, **options)
        self._clients.append(client)
        return client

    def wait(self, deadline: float = STOP_SECONDS) -> int:
        """Waits for the process to end by itself; its exit code."""
        code = self.process.wait(timeout=deadline)
        self._reader.join(timeout=deadline)
        return code

    def stop(self, number: signal.Signals = signal.SIGTERM, deadline: float = STOP_SECONDS) -> int:
        """Stops the server as its operator would; its exit code."""
        self.process.send_signal(number)
        return self.wait(deadline)

    def kill(self) -> None:
        """Ends the process at once, as a crash or the system's OOM killer would."""
        for client in self._clients:
            client.channel.close()
        self._clients.clear()
        if self.process.poll() is None:
            self.process.kill()
        self.wait()

    def status_kib(self, field: str) -> int:
        """A number of the process's status, such as `VmRSS` or `VmHWM`, in KiB."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            name, _, value = line.partition(":")
            if name == field:
                return int(value.split()[0])
        raise AssertionError(f"the process has no {field}")

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            try:
                entry = json.loads(line)
            except ValueError:
                entry = {"message": line.rstrip("\n")}
            self.log.append(entry)
            self._lines.put(entry)
        self._lines.put(None)
        self.process.stderr.close()

    def _await_address(self) -> str:
        """The log says the address once the server serves."""
        while True:
            left = self.started + START_SECONDS - time.monotonic()
            try:
                entry = self._lines.get(timeout=max(left, 0))
            except queue.Empty:
                raise AssertionError(f"the server does not serve: {self.log}") from None
            assert entry is not None, f"the server ended: {self.log}"
            if entry.get("message", "").startswith("metrics are served"):
                self.metrics_address: str = entry["address"]
            elif "address" in entry:
                return entry["address"]
