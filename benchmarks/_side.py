"""One side of a benchmark that takes turns: a command that answers with windows, and how busy the machine was."""

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
class Side:
    """A way to train, the command that measures it once, and what was found."""

    name: str
    command: list[str]
    environment: dict[str, str] = field(default_factory=dict)
    windows: list[float] = field(default_factory=list)
    others: list[float] = field(default_factory=list)  # share of the processors that others used meanwhile
    facts: dict[str, Any] = field(default_factory=dict)

    def run(self) -> None:
        busy, own, start = used(), spent(), time.perf_counter()
        environment = {**os.environ, **self.environment}
        done = subprocess.run(self.command, cwd=ROOT, env=environment, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{shlex.join(self.command)} failed:\n{done.stderr}")
        self.facts = json.loads(done.stdout.splitlines()[-1])
        self.windows += self.facts.pop("windows")
        time_there_was = (time.perf_counter() - start) * (os.cpu_count() or 1)
        self.others.append(max(0.0, (used() - busy) - (spent() - own)) / time_there_was)

    def cells(self, ours: Side | None) -> list[str]:
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


def used() -> float:
    """Processor seconds that the whole machine has spent, time stolen by its host included."""
    stat = Path("/proc/stat")
    if not stat.exists():
        return 0.0
    user, nice, system, _, _, irq, softirq, steal, *_ = map(int, stat.read_text().split("\n")[0].split()[1:])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def spent() -> float:
    """Processor seconds of the processes that we started and that have ended."""
    found = resource.getrusage(resource.RUSAGE_CHILDREN)
    return found.ru_utime + found.ru_stime
