"""A program of a benchmark that alternates between several: its command, its windows, and the other load."""

from __future__ import annotations

import json
import os
import resource
import shlex
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.timing import spread

ROOT = Path(__file__).resolve().parent.parent


@dataclass
class BenchmarkProcess:
    """A program, the command that measures it once, and its results."""

    name: str
    command: list[str]
    environment: dict[str, str] = field(default_factory=dict)
    windows: list[float] = field(default_factory=list)
    others: list[float] = field(default_factory=list)  # share of the processors used by other processes
    facts: dict[str, Any] = field(default_factory=dict)

    def run(self) -> None:
        busy, own, start = machine_seconds(), child_seconds(), time.perf_counter()
        environment = {**os.environ, **self.environment}
        done = subprocess.run(self.command, cwd=ROOT, env=environment, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{shlex.join(self.command)} failed:\n{done.stderr}")
        self.facts = json.loads(done.stdout.splitlines()[-1])
        self.windows += self.facts.pop("windows")
        available = (time.perf_counter() - start) * (os.cpu_count() or 1)
        self.others.append(max(0.0, (machine_seconds() - busy) - (child_seconds() - own)) / available)

    def cells(self, ours: BenchmarkProcess | None) -> list[str]:
        middle, low, high = spread(self.windows)
        times = f"{spread(ours.windows).median / middle:.2f} times" if ours and ours is not self else ""
        tokens = self.facts.get("batches", {}).get("target tokens", "")
        load = f"{sum(self.others) / len(self.others):.0%}"
        return [
            self.name,
            f"{middle:,.0f}",
            f"{low:,.0f} to {high:,.0f}",
            str(len(self.windows)),
            times,
            f"{tokens:,.0f}" if tokens else "",
            load,
        ]


def machine_seconds() -> float:
    """Processor seconds of the machine so far, including time stolen by its host."""
    stat = Path("/proc/stat")
    if not stat.exists():
        return 0.0
    user, nice, system, _, _, irq, softirq, steal, *_ = map(int, stat.read_text().split("\n")[0].split()[1:])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def child_seconds() -> float:
    """Processor seconds of the processes that were started here and have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
