"""A disk whose power can be cut: ext4 in a file, behind a loop device."""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import subprocess
import time
from pathlib import Path

# _IOR('X', 125, __u32) of the kernel's fs/ext4/ext4.h, and how far the file system goes down:
# nothing is written any more, not even what its journal holds in memory.
EXT4_IOC_SHUTDOWN = (2 << 30) | (4 << 16) | (ord("X") << 8) | 125
EXT4_GOING_FLAGS_NOLOGFLUSH = 0x2

# Sparse: room for many segments of the log, of which next to nothing is used.
IMAGE_BYTES = 2 << 30
COMMAND_SECONDS = 60
# How long a process that was killed may hold its files.
UNMOUNT_SECONDS = 20
TOOLS = ("mkfs.ext4", "e2fsck", "losetup", "mount", "umount")
OPT_OUT = "SEENSET_WITHOUT_POWER_CUTS"


class NoVolume(Exception):
    """This machine cannot cut the power of a disk."""


class Volume:
    """A mounted file system, which goes with the `with` block: nothing stays mounted."""

    def __init__(self, directory: Path) -> None:
        obstacle = _obstacle()
        if obstacle is not None:
            raise NoVolume(
                f"the power cannot be cut here: {obstacle}. It takes root, loop devices and "
                f"e2fsprogs; where they cannot be had, {OPT_OUT}=1 leaves these tests out"
            )
        self.path = directory / "volume"
        self.path.mkdir()
        self._image = directory / "volume.img"
        self._image.touch()
        os.truncate(self._image, IMAGE_BYTES)
        self._is_mounted = False
        _run("mkfs.ext4", "-q", "-F", self._image)
        try:
            self._device = _run("losetup", "--find", "--show", self._image).strip()
        except AssertionError as error:
            raise NoVolume(f"the power cannot be cut here: {error}") from None

    def __enter__(self) -> Volume:
        try:
            self._mount()
        except BaseException:
            _run("losetup", "--detach", self._device)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._unmount()
        finally:
            _run("losetup", "--detach", self._device)

    def remove(self) -> None:
        """Removes the image of a volume that has served. Else it stays, as evidence, for as
        long as the directory that it is in."""
        self._image.unlink()

    def cut(self) -> None:
        """Cuts the power: what is not on the disk by now will never be."""
        directory = os.open(self.path, os.O_RDONLY)
        try:
            flags = struct.pack("I", EXT4_GOING_FLAGS_NOLOGFLUSH)
            fcntl.ioctl(directory, EXT4_IOC_SHUTDOWN, flags)
        finally:
            os.close(directory)

    def revive(self) -> None:
        """Power again: mounts what is on the disk, by way of the journal, and checks it."""
        self._unmount()
        self._mount()
        # A file system that is not whole would make findings of its own. Without a mount
        # in between the check would see the journal that is not yet played.
        self._unmount()
        _run("e2fsck", "-f", "-n", self._device)
        self._mount()

    def _mount(self) -> None:
        _run("mount", "-t", "ext4", self._device, self.path)
        self._is_mounted = True

    def _unmount(self) -> None:
        until = time.monotonic() + UNMOUNT_SECONDS
        while self._is_mounted:
            try:
                _run("umount", self.path)
            except AssertionError:
                if time.monotonic() > until:
                    # Still better than a mount that outlives the run.
                    _run("umount", "--lazy", self.path)
                    self._is_mounted = False
                    raise
                time.sleep(0.05)
            else:
                self._is_mounted = False


def _obstacle() -> str | None:
    if os.geteuid() != 0:
        return "this is not root"
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        return f"{', '.join(missing)} is missing"
    if not Path("/dev/loop-control").exists():
        return "there are no loop devices"
    return None


def _run(*command: Path | str) -> str:
    """Runs a tool that must succeed; what it says."""
    result = subprocess.run(
        [str(part) for part in command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS,
        check=False,
    )
    said = result.stdout + result.stderr
    assert result.returncode == 0, f"{' '.join(map(str, command))}: {said.strip()}"
    return result.stdout
