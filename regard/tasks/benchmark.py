"""How fast a translator is: sentences and tokens a second, the time of one sentence, and memory."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from regard.decoding import DecodingConfig
from regard.errors import UsageError
from regard.tasks.translation.predictor import Translator

NUM_WARMUP = 8  # sentences translated before the clock runs: caches, allocators and kernels are ready then


RESET, STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")  # Linux only


@dataclass(frozen=True)
class Throughput:
    """What it took to translate texts, `batch` of them at a time; 0 is all at once, grouped as the engine likes it.

    `latency` has the seconds of one call at the 50th, 95th and 99th percentile; `memory` is the most that the process
    held meanwhile, in megabytes, None where the system does not tell.
    """

    engine: str
    batch_size: int
    num_sentences: int
    num_tokens: int
    seconds: float
    latency: tuple[float, float, float]
    peak_memory_mb: float | None

    @property
    def sentences_per_second(self) -> float:
        return self.num_sentences / self.seconds

    @property
    def tokens_per_second(self) -> float:
        return self.num_tokens / self.seconds


def measure_throughput(
    translator: Translator, texts: Sequence[str], batch_size: int = 0, options: DecodingConfig | None = None
) -> Throughput:
    """Translate the texts once on the clock, after a few for warming up; texts of similar length go together.

    A batch of 1 takes them in their own order, as they would come one by one. Tokens are those written, the ends of
    sentences counted.
    """
    texts = [text for text in texts if text.strip()]
    if not texts:
        raise UsageError("there is nothing to measure with: give at least one text that is not empty")
    if batch_size < 0:
        raise UsageError(f"a batch has 1 or more texts, not {batch_size}; 0 is all of them")
    options = options or translator.decoding_config()
    translator.search(texts[:NUM_WARMUP], options)
    took, tokens = [], 0
    with _garbage_collection_off(), _track_peak_memory() as peak:
        for group in _split_into_batches(texts, batch_size):
            start = time.perf_counter()
            found = translator.search(group, options)
            took.append(time.perf_counter() - start)
            tokens += sum(len(best[0].token_ids) + best[0].finished for best in found if best)
    name = getattr(translator.model, "name", "torch")
    return Throughput(name, batch_size, len(texts), tokens, sum(took), _percentiles(took), peak[0] if peak else None)


def _split_into_batches(texts: Sequence[str], batch_size: int) -> Iterator[list[str]]:
    if batch_size > 1:
        texts = sorted(texts, key=len, reverse=True)
    size = batch_size or len(texts)
    for start in range(0, len(texts), size):
        yield list(texts[start : start + size])


def _percentiles(values: Sequence[float]) -> tuple[float, float, float]:
    """
    >>> _percentiles([1.0, 2.0, 3.0])
    (2.0, 2.9, 2.98)
    """
    if len(values) == 1:
        return values[0], values[0], values[0]
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    return round(cuts[49], 9), round(cuts[94], 9), round(cuts[98], 9)


@contextmanager
def _garbage_collection_off() -> Iterator[None]:
    """Nobody collects garbage while the clock runs."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextmanager
def _track_peak_memory() -> Iterator[list[float]]:
    """Afterwards the list has the most memory that the process held inside, in megabytes, if the system tells."""
    found: list[float] = []
    known = STATUS.exists()
    if known:
        try:
            RESET.write_text("5")  # the highest so far becomes what is held now
        except OSError:
            known = False
    yield found
    if known:
        line = next(line for line in STATUS.read_text().splitlines() if line.startswith("VmHWM"))
        found.append(int(line.split()[1]) / 1024)
