"""Ways to damage a file, drawn by chance: bits, ends, pieces, and what JSON or a safetensors header says."""

import json
import resource
import struct
import sys
from contextlib import contextmanager
from pathlib import Path

VALUES = [None, True, -1, 0, 1, 3, 7, 2**31, 2**63, 10**9, 1e308, -0.5, float("nan"), "", "x", "../../etc/passwd"]
VALUES += [[], [[]], {}, {"": None}, [1, 2], ["a", "b"], "\ud800", "0" * 300]
RUNS_CODE = ("pickle.find_class", "os.system", "subprocess.Popen", "os.exec", "os.posix_spawn", "os.fork")
RUNS_CODE += ("socket.connect",)
watched: list[str] | None = None


def damaged(content, chance):
    """The content with one to three things wrong."""
    ways = [cut, flipped, replaced, left_out, doubled, filled_in, emptied]
    ways += [told_otherwise] * 4 if content[:1] in b"{[" else [header_otherwise] * 4
    for _ in range(chance.choice([1, 1, 1, 2, 3])):
        content = chance.choice(ways)(content, chance)
    return content


def place(content, chance):
    return chance.randrange(len(content) + 1)


def cut(content, chance):
    return content[: place(content, chance)]


def flipped(content, chance):
    found = bytearray(content)
    for _ in range(chance.randint(1, 8) if found else 0):
        found[chance.randrange(len(found))] ^= 1 << chance.randrange(8)
    return bytes(found)


def replaced(content, chance):
    at, size = place(content, chance), chance.randint(1, 20)
    return content[:at] + chance.randbytes(size) + content[at + size :]


def left_out(content, chance):
    at = place(content, chance)
    return content[:at] + content[at + chance.randint(1, 50) :]


def doubled(content, chance):
    at, size = place(content, chance), chance.randint(1, 50)
    return content[: at + size] + content[at:]


def filled_in(content, chance):
    at = place(content, chance)
    return content[:at] + chance.randbytes(chance.randint(1, 20)) + content[at:]


def emptied(content, chance):
    return b"" if chance.random() < 0.1 else bytes(len(content))


def told_otherwise(content, chance):
    """One value of the JSON is another."""
    try:
        record = json.loads(content)
    except ValueError:
        return flipped(content, chance)
    return json.dumps(altered(record, chance)).encode("utf-8", "surrogatepass")


def altered(value, chance):
    if isinstance(value, dict) and value and chance.random() < 0.9:
        key = chance.choice(list(value))
        if chance.random() < 0.1:
            return {name: item for name, item in value.items() if name != key}
        if chance.random() < 0.05:
            return {**value, "more": chance.choice(VALUES)}
        return {**value, key: altered(value[key], chance)}
    if isinstance(value, list) and value and chance.random() < 0.9:
        at = chance.randrange(len(value))
        return [*value[:at], altered(value[at], chance), *value[at + 1 :]]
    return chance.choice(VALUES)


def header_otherwise(content, chance):
    """The header of a safetensors file says something else; the numbers after it stay."""
    size = struct.unpack("<Q", content[:8])[0] if len(content) >= 8 else 0
    header = content[8 : 8 + size]
    if not header.startswith(b"{"):
        return flipped(content, chance)
    if chance.random() < 0.2:
        return struct.pack("<Q", chance.choice([0, 1, size - 1, size + 1, 2**40, 2**63, 2**64 - 1])) + content[8:]
    header = told_otherwise(header, chance)
    return struct.pack("<Q", len(header)) + header + content[8 + size :]


@contextmanager
def no_code_runs():
    """Nothing that a file says is run as a program, and nobody is called."""
    global watched
    if not getattr(sys, "_regard_watches", False):
        sys.addaudithook(lambda event, _: watched.append(event) if watched is not None and event in RUNS_CODE else None)
        sys._regard_watches = True
    watched = []
    try:
        yield
        assert watched == [], watched
    finally:
        watched = None


@contextmanager
def memory_for(more: int = 3_000_000_000):
    """What would take all memory fails instead."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + more, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
