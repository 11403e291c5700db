"""`regard serve` under the load of many clients: real processes, real connections.

    python -m benchmarks.server RUN TEXTS [--only load overload stop memory] [--seconds 60] [--out FILE]

TEXTS has one sentence per line (also .gz or .xz). Four trials:

    load       64 clients that send their next request after each answer, compared with offline translation in unsorted
               batches of 64, alternately; during the latter, the clients call a dummy server at the same rate
    overload   600 clients send four times more requests than can be answered: the time until requests are refused,
               and whether the server recovers
    stop       SIGTERM under load: every accepted request must be answered
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

from benchmarks._clients import Client, Tally, run_clients, start_dummy_server

CLIENTS = 64
CROWD, TIMES = 600, 4  # at overload: clients, and the factor of requests to capacity
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
start, done = time.perf_counter(), 0
while (passed := time.perf_counter() - start) < seconds:
    at = done % (len(texts) - 64)
    translator.search(texts[at:at + 64])
    done += 64
print(done / (time.perf_counter() - start), flush=True)
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


def make_clients(address: str, texts: Sequence[str], tally: Tally, count: int = CLIENTS) -> list[Client]:
    """Clients, each with its own order of the texts."""
    return [Client(address, random.Random(i).sample(texts, len(texts)), tally) for i in range(count)]


def measure_server(run: str, texts: Sequence[str], seconds: float) -> tuple[float, Tally]:
    """Texts per second of a server with clients."""
    with server(run) as (address, _):
        asyncio.run(run_clients(make_clients(address, texts, Tally(), 8), 2))  # warm-up
        tally = Tally()
        took = asyncio.run(run_clients(make_clients(address, texts, tally), seconds))
        print(describe_batches(address), flush=True)
    return tally.count() / took, tally


def describe_batches(address: str) -> str:
    """The sizes of batches, from the metrics of the server."""
    with urllib.request.urlopen(f"{address.rstrip('/')}/v1/metrics") as answer:
        lines = answer.read().decode().splitlines()
    numbers = dict(line.rsplit(" ", 1) for line in lines if line.startswith("regard_batch_size"))
    count, total = (float(numbers[f"regard_batch_size_{name}"]) for name in ("count", "sum"))
    return f"  {count:.0f} batches, {total / count:.1f} texts each"


def measure_offline(run: str, file: str, texts: Sequence[str], seconds: float, rate: float) -> float:
    """Texts per second without a server, while clients call a dummy server at this rate."""
    command = [sys.executable, "-c", OFFLINE, run, file, str(seconds)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdout.readline()

    async def call_dummy_server() -> None:
        dummy = await start_dummy_server(600)
        address = f"http://127.0.0.1:{dummy.sockets[0].getsockname()[1]}"
        callers = make_clients(address, texts, Tally())
        for one in callers:
            one.pause = lambda status: CLIENTS / rate
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
        await run_clients(callers, seconds)
        dummy.close()

    asyncio.run(call_dummy_server())
    texts_per_second = float(process.stdout.readline())
    process.wait()
    return texts_per_second


def try_load(run: str, file: str, texts: Sequence[str], seconds: float, rounds: int) -> Iterator[str]:
    ratios = []
    for _ in range(rounds):
        rate, tally = measure_server(run, texts, seconds)
        alone = measure_offline(run, file, texts, seconds, rate)
        ratios.append(rate / alone)
        times = ", ".join(f"p{share} {tally.percentile(share / 100):.0f} ms" for share in (50, 95, 99))
        yield f"load: {CLIENTS} clients, {seconds:g} s: {rate:.1f} texts/s ({tally}; {times})"
        yield f"      offline in batches of 64: {alone:.1f} texts/s; ratio {rate / alone:.2f}"
    yield f"      median ratio {median(ratios):.2f} (at least 0.60)"


def try_overload(run: str, texts: Sequence[str], seconds: float) -> Iterator[str]:
    with server(run) as (address, _):
        capacity = Tally()
        asyncio.run(run_clients(make_clients(address, texts, capacity), 5))  # without overload
        rate, tally, random_pauses = TIMES * capacity.count() / 5, Tally(), random.Random(0)
        crowd = make_clients(address, texts, tally, CROWD)
        for one in crowd:
            one.pause = lambda status: random_pauses.expovariate(rate / CROWD)
            one.first = random_pauses.expovariate(rate / CROWD)
        asyncio.run(run_clients(crowd, seconds))
        refused = [tally.percentile(share, 429, 503) for share in (0.5, 0.99, 1.0)]
        yield f"overload: {len(crowd)} clients send {rate:.0f} requests per second, {TIMES} times too many: {tally}"
        yield f"      refusals: p50 {refused[0]:.0f} ms, p99 {refused[1]:.0f} ms (at most 100), worst {refused[2]:.0f}"
        after = Tally()
        asyncio.run(run_clients(make_clients(address, texts, after), 5))
        yield f"      then {CLIENTS} clients again: {after}"


def try_stop(run: str, texts: Sequence[str]) -> Iterator[str]:
    tally = Tally()
    with server(run) as (address, process):

        async def send_and_stop() -> None:
            callers = asyncio.create_task(run_clients(make_clients(address, texts, tally), 20))
            await asyncio.sleep(4)
            process.send_signal(signal.SIGTERM)
            await callers

        asyncio.run(send_and_stop())
        code = process.wait(60)
    yield f"stop: SIGTERM under load: {tally}; exit code {code}; lost: {tally.lost['reset']} (must be 0)"


def try_memory(run: str, texts: Sequence[str], most: int) -> Iterator[str]:
    sizes: dict[int, float] = {}
    with server(run) as (address, process):
        tally = Tally()

        async def send_and_measure() -> None:
            task = asyncio.gather(
                *(one.run(lambda: tally.total() < most) for one in make_clients(address, texts, tally))
            )
            for mark in (1_000, most // 2, most):
                while tally.total() < mark and not task.done():
                    await asyncio.sleep(0.05)
                sizes[mark] = resident(process.pid)
            await task

        asyncio.run(send_and_measure())
    first, last = sizes[1_000], sizes[most]
    growth = ", ".join(f"{size:.0f} MB after {mark:,}" for mark, size in sizes.items())
    yield f"memory: {growth}: {100 * (last / first - 1):+.1f} % (at most +5)"


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
    options = parser.parse_args()
    from regard.data.text_files import read_lines

    texts = list(read_lines(Path(options.texts)))
    trials = {
        "load": lambda: try_load(options.run, options.texts, texts, options.seconds, options.rounds),
        "overload": lambda: try_overload(options.run, texts, options.seconds / 2),
        "stop": lambda: try_stop(options.run, texts),
        "memory": lambda: try_memory(options.run, texts, options.requests),
    }
    lines = [f"{time.strftime('%F')}, load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores", ""]
    print(lines[0])
    for name in options.only:
        for line in trials[name]():
            print(line, flush=True)
            lines.append(line)
    if options.out:
        head = ["# A server under load", "", "    python -m benchmarks.server RUN TEXTS", "", "```text"]
        options.out.write_text("\n".join([*head, *lines, "```"]) + "\n")


if __name__ == "__main__":
    main()
