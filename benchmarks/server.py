"""How `regard serve` stands up to many clients at once: real processes, real connections.

    python -m benchmarks.server RUN TEXTS [--only load overload stop memory] [--seconds 60] [--out FILE]

TEXTS has a sentence a line (also .gz or .xz). Four trials:

    load       64 clients that each ask again as soon as they are answered, beside offline translation in unsorted
               batches of 64, in turns; while the latter runs, the clients ask a stand-in at the same rate
    overload   600 clients ask four times as often as can be answered: how soon those that cannot wait are sent
               away, and whether it recovers
    stop       SIGTERM in the middle of the load: every request that was taken in has its answer
    memory     resident memory after 1,000 and after 10,000 requests
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from benchmarks._clients import Client, Tally, load, stand_in

CLIENTS = 64
CROWD, TIMES = 600, 4  # at overload: clients, and how many times more they ask than can be answered
OFFLINE = """
import sys, time, regard
from regard.data.text_files import read_lines
from pathlib import Path
texts, seconds = list(read_lines(Path(sys.argv[2]))), float(sys.argv[3])
import random
random.Random(1).shuffle(texts)
translator = regard.load(sys.argv[1])
translator.search(texts[:64])
print("ready", flush=True)
sys.stdin.readline()
began, done = time.perf_counter(), 0
while (passed := time.perf_counter() - began) < seconds:
    at = done % (len(texts) - 64)
    translator.search(texts[at:at + 64])
    done += 64
print(done / (time.perf_counter() - began), flush=True)
"""


@contextmanager
def server(run: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    command = [sys.executable, "-m", "regard", "serve", run, "--port", "0", "--no-open", "--device", "cpu"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    address = process.stdout.readline().split()[1]
    try:
        yield address, process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.wait(60)


def clients(address: str, texts: Sequence[str], tally: Tally, count: int = CLIENTS) -> list[Client]:
    """Each with its own order of the texts."""
    return [Client(address, random.Random(i).sample(texts, len(texts)), tally) for i in range(count)]


def served(run: str, texts: Sequence[str], seconds: float) -> tuple[float, Tally]:
    """Texts a second that a server gave its clients."""
    with server(run) as (address, _):
        asyncio.run(load(clients(address, texts, Tally(), 8), 2))  # so that everything has run once
        tally = Tally()
        took = asyncio.run(load(clients(address, texts, tally), seconds))
        print(batches(address), flush=True)
    return tally.count() / took, tally


def batches(address: str) -> str:
    """What the server says of the sizes of its batches."""
    with urllib.request.urlopen(f"{address}v1/metrics") as answer:
        lines = answer.read().decode().splitlines()
    numbers = dict(line.rsplit(" ", 1) for line in lines if line.startswith("regard_batch_texts"))
    count, total = (float(numbers[f"regard_batch_texts_{name}"]) for name in ("count", "sum"))
    return f"  {count:.0f} batches, {total / count:.1f} texts each"


def offline(run: str, file: str, texts: Sequence[str], seconds: float, rate: float) -> float:
    """Texts a second without a server, while clients ask a stand-in at this rate."""
    command = [sys.executable, "-c", OFFLINE, run, file, str(seconds)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdout.readline()

    async def beside() -> None:
        other = await stand_in(600)
        address = f"http://127.0.0.1:{other.sockets[0].getsockname()[1]}"
        asking = clients(address, texts, Tally())
        for one in asking:
            one.pause = lambda status: CLIENTS / rate
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
        await load(asking, seconds)
        other.close()

    asyncio.run(beside())
    found = float(process.stdout.readline())
    process.wait()
    return found


def try_load(run: str, file: str, texts: Sequence[str], seconds: float, rounds: int) -> Iterator[str]:
    ratios = []
    for _ in range(rounds):
        rate, tally = served(run, texts, seconds)
        alone = offline(run, file, texts, seconds, rate)
        ratios.append(rate / alone)
        times = ", ".join(f"p{share} {tally.percentile(share / 100):.0f} ms" for share in (50, 95, 99))
        yield f"load: {CLIENTS} clients, {seconds:g} s: {rate:.1f} texts/s ({tally}; {times})"
        yield f"      offline in batches of 64: {alone:.1f} texts/s; ratio {rate / alone:.2f}"
    yield f"      median ratio {median(ratios):.2f} (at least 0.60)"


def try_overload(run: str, texts: Sequence[str], seconds: float) -> Iterator[str]:
    with server(run) as (address, _):
        usual = Tally()
        asyncio.run(load(clients(address, texts, usual), 5))  # as much as it can do
        rate, tally, chance = TIMES * usual.count() / 5, Tally(), random.Random(0)
        crowd = clients(address, texts, tally, CROWD)
        for one in crowd:
            one.pause = lambda status: chance.expovariate(rate / CROWD)
            one.first = chance.expovariate(rate / CROWD)
        asyncio.run(load(crowd, seconds))
        refused = [tally.percentile(share, 429, 503) for share in (0.5, 0.99, 1.0)]
        yield f"overload: {len(crowd)} clients ask {rate:.0f} times a second, {TIMES} times too often: {tally}"
        yield f"      refusals: p50 {refused[0]:.0f} ms, p99 {refused[1]:.0f} ms (at most 100), worst {refused[2]:.0f}"
        after = Tally()
        asyncio.run(load(clients(address, texts, after), 5))
        yield f"      then {CLIENTS} clients again: {after}"


def try_stop(run: str, texts: Sequence[str]) -> Iterator[str]:
    tally = Tally()
    with server(run) as (address, process):

        async def stopped() -> None:
            asking = asyncio.create_task(load(clients(address, texts, tally), 20))
            await asyncio.sleep(4)
            process.send_signal(signal.SIGTERM)
            await asking

        asyncio.run(stopped())
        code = process.wait(60)
    yield f"stop: SIGTERM under load: {tally}; exit code {code}; lost: {tally.lost['reset']} (must be 0)"


def try_memory(run: str, texts: Sequence[str], most: int) -> Iterator[str]:
    sizes: dict[int, float] = {}
    with server(run) as (address, process):
        tally = Tally()

        async def measured() -> None:
            task = asyncio.gather(*(one.go(lambda: tally.total() < most) for one in clients(address, texts, tally)))
            for mark in (1_000, most // 2, most):
                while tally.total() < mark and not task.done():
                    await asyncio.sleep(0.05)
                sizes[mark] = resident(process.pid)
            await task

        asyncio.run(measured())
    first, last = sizes[1_000], sizes[most]
    told = ", ".join(f"{size:.0f} MB after {mark:,}" for mark, size in sizes.items())
    yield f"memory: {told}: {100 * (last / first - 1):+.1f} % (at most +5)"


def resident(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.server", description="Many clients at once.")
    parser.add_argument("run")
    parser.add_argument("texts")
    parser.add_argument("--only", nargs="+", default=["load", "overload", "stop", "memory"])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    from regard.data.text_files import read_lines

    texts = list(read_lines(Path(given.texts)))
    trials = {
        "load": lambda: try_load(given.run, given.texts, texts, given.seconds, given.rounds),
        "overload": lambda: try_overload(given.run, texts, given.seconds / 2),
        "stop": lambda: try_stop(given.run, texts),
        "memory": lambda: try_memory(given.run, texts, given.requests),
    }
    told = [f"{time.strftime('%F')}, load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores", ""]
    print(told[0])
    for name in given.only:
        for line in trials[name]():
            print(line, flush=True)
            told.append(line)
    if given.out:
        head = ["# A server under load", "", "    python -m benchmarks.server RUN TEXTS", "", "```text"]
        given.out.write_text("\n".join([*head, *told, "```"]) + "\n")


if __name__ == "__main__":
    main()
