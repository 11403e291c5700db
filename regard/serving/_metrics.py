"""Counts and times of a server, in the text that Prometheus reads."""

from __future__ import annotations

import sys
import threading
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

from regard._version import __version__

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
TEXTS = (1, 2, 4, 8, 16, 32, 64, 128)
Labels = tuple[tuple[str, str], ...]


class Counter:
    """Numbers that only grow, one for each set of labels."""

    kind = "counter"

    def __init__(self, name: str, about: str) -> None:
        self.name, self.about = name, about
        self._values: dict[Labels, float] = defaultdict(float)

    def add(self, amount: float = 1, **labels: str) -> None:
        self._values[tuple(labels.items())] += amount

    def lines(self) -> Iterator[str]:
        for labels, value in sorted(self._values.items()):
            yield f"{self.name}{_braced(labels)} {value:.17g}"


class Gauge:
    """A number that somebody else knows."""

    kind = "gauge"

    def __init__(self, name: str, about: str, value: Callable[[], float | None]) -> None:
        self.name, self.about, self._value = name, about, value

    def lines(self) -> Iterator[str]:
        value = self._value()
        if value is not None:
            yield f"{self.name} {value:.17g}"


class Histogram:
    """How many values were how large: counts up to each bound, their number and their sum."""

    kind = "histogram"

    def __init__(self, name: str, about: str, bounds: Sequence[float]) -> None:
        self.name, self.about, self.bounds = name, about, tuple(bounds)
        self._counts: dict[Labels, list[int]] = defaultdict(lambda: [0] * (len(self.bounds) + 1))
        self._sums: dict[Labels, float] = defaultdict(float)

    def add(self, value: float, **labels: str) -> None:
        key = tuple(labels.items())
        self._counts[key][bisect_left(self.bounds, value)] += 1
        self._sums[key] += value

    def lines(self) -> Iterator[str]:
        for labels, counts in sorted(self._counts.items()):
            total = 0
            for bound, count in zip((*map(str, self.bounds), "+Inf"), counts, strict=True):
                total += count
                yield f"{self.name}_bucket{_braced((*labels, ('le', bound)))} {total}"
            yield f"{self.name}_sum{_braced(labels)} {self._sums[labels]:.17g}"
            yield f"{self.name}_count{_braced(labels)} {total}"


class Metrics:
    """All that a server counts. The event loop and the thread that computes both write here.

    >>> metrics = Metrics()
    >>> metrics.answered("/v1/translate", "POST", 200, 0.2)
    >>> [line for line in metrics.text().splitlines() if line.startswith("regard_requests_total")]
    ['regard_requests_total{route="/v1/translate",method="POST",status="200"} 1']
    """

    def __init__(self, waiting: Callable[[], float] = lambda: 0) -> None:
        self._lock = threading.Lock()
        self.open = 0
        self._requests = Counter("regard_requests_total", "Requests answered, by route and status.")
        self._seconds = Histogram("regard_request_seconds", "Seconds until an answer was sent.", SECONDS)
        self._batches = Histogram("regard_batch_texts", "Texts that the model was given at once.", TEXTS)
        self._tokens = Counter("regard_tokens_total", "Tokens of texts that were read and written.")
        self._all = (
            self._requests,
            self._seconds,
            self._batches,
            self._tokens,
            Gauge("regard_waiting_texts", "Texts that came and are not done.", waiting),
            Gauge("regard_open_requests", "Requests that are being answered.", lambda: self.open),
            Gauge("process_resident_memory_bytes", "Memory of the process.", resident),
        )

    def answered(self, route: str, method: str, status: int, seconds: float) -> None:
        with self._lock:
            self._requests.add(route=route, method=method, status=str(status))
            self._seconds.add(seconds, route=route)

    def batch(self, size: int) -> None:
        with self._lock:
            self._batches.add(size)

    def tokens(self, side: str, count: int) -> None:
        with self._lock:
            self._tokens.add(count, side=side)

    def text(self) -> str:
        """Everything, a line a number."""
        found = [f'# TYPE regard_info gauge\nregard_info{{version="{__version__}"}} 1']
        with self._lock:
            for one in self._all:
                found += [f"# HELP {one.name} {one.about}", f"# TYPE {one.name} {one.kind}", *one.lines()]
        return "\n".join(found) + "\n"


def resident() -> float | None:
    """The memory that this process has in use, where the system tells it."""
    if not sys.platform.startswith("linux"):
        return None
    import resource

    with open("/proc/self/statm", encoding="ascii") as file:
        return float(file.read().split()[1]) * resource.getpagesize()


def _braced(labels: Labels) -> str:
    return "{" + ",".join(f'{name}="{value}"' for name, value in labels) + "}" if labels else ""
