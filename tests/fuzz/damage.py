"""Random damage to a file: of bits, ends and parts, and of the values in JSON or a safetensors header."""

import json
import resource
import struct
import sys
from contextlib import contextmanager
from pathlib import Path

from safetensors import safe_open
from safetensors.numpy import load_file, save_file

VALUES = [None, True, -1, 0, 1, 3, 7, 2**31, 2**63, 10**9, 1e308, -0.5, float("nan"), "", "x", "../../etc/passwd"]
VALUES += [[], [[]], {}, {"": None}, [1, 2], ["a", "b"], "\ud800", "0" * 300]
CODE_EVENTS = ("pickle.find_class", "os.system", "subprocess.Popen", "os.exec", "os.posix_spawn", "os.fork")
CODE_EVENTS += ("socket.connect",)
events: list[str] | None = None


def corrupt(content, rng):
    """The content with one to three kinds of damage."""
    methods = [truncate, flip_bits, replace, remove, duplicate, insert, clear]
    methods += [alter_json] * 4 if content[:1] in b"{[" else [alter_header] * 4
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        content = rng.choice(methods)(content, rng)
    return content


def random_position(content, rng):
    return rng.randrange(len(content) + 1)


def truncate(content, rng):
    return content[: random_position(content, rng)]


def flip_bits(content, rng):
    bits = bytearray(content)
    for _ in range(rng.randint(1, 8) if bits else 0):
        bits[rng.randrange(len(bits))] ^= 1 << rng.randrange(8)
    return bytes(bits)


def replace(content, rng):
    at, size = random_position(content, rng), rng.randint(1, 20)
    return content[:at] + rng.randbytes(size) + content[at + size :]


def remove(content, rng):
    at = random_position(content, rng)
    return content[:at] + content[at + rng.randint(1, 50) :]


def duplicate(content, rng):
    at, size = random_position(content, rng), rng.randint(1, 50)
    return content[: at + size] + content[at:]


def insert(content, rng):
    at = random_position(content, rng)
    return content[:at] + rng.randbytes(rng.randint(1, 20)) + content[at:]


def clear(content, rng):
    return b"" if rng.random() < 0.1 else bytes(len(content))


def alter_json(content, rng):
    """Replace one value of the JSON."""
    try:
        record = json.loads(content)
    except ValueError:
        return flip_bits(content, rng)
    return json.dumps(alter_value(record, rng)).encode("utf-8", "surrogatepass")


def alter_value(value, rng):
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(list(value))
        if rng.random() < 0.1:
            return {name: item for name, item in value.items() if name != key}
        if rng.random() < 0.05:
            return {**value, "more": rng.choice(VALUES)}
        return {**value, key: alter_value(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.9:
        at = rng.randrange(len(value))
        return [*value[:at], alter_value(value[at], rng), *value[at + 1 :]]
    return rng.choice(VALUES)


def alter_header(content, rng):
    """Alter the header of a safetensors file, not the numbers after it."""
    size = struct.unpack("<Q", content[:8])[0] if len(content) >= 8 else 0
    header = content[8 : 8 + size]
    if not header.startswith(b"{"):
        return flip_bits(content, rng)
    if rng.random() < 0.2:
        return struct.pack("<Q", rng.choice([0, 1, size - 1, size + 1, 2**40, 2**63, 2**64 - 1])) + content[8:]
    header = alter_json(header, rng)
    return struct.pack("<Q", len(header)) + header + content[8 + size :]


def remove_checksums(run):
    """Make a run as a stranger would write it, so that its contents are read and not only its checksums."""
    record = json.loads((run / "run.json").read_text())
    for name in ("sha256", "processor_files"):
        del record[name]
    (run / "run.json").write_text(json.dumps(record))
    path = run / "weights" / "best.safetensors"
    with safe_open(path, "np") as file:
        shared = file.metadata()["shared"]
    save_file(load_file(path), path, {"shared": shared})


@contextmanager
def forbid_code():
    """Fail if the content of a file is run as code, or a connection is opened."""
    global events
    if not getattr(sys, "_regard_has_hook", False):
        sys.addaudithook(lambda event, _: events.append(event) if events is not None and event in CODE_EVENTS else None)
        sys._regard_has_hook = True
    events = []
    try:
        yield
        assert events == [], events
    finally:
        events = None


@contextmanager
def memory_limit(more: int = 3_000_000_000):
    """Let allocations beyond a limit fail."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + more, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
