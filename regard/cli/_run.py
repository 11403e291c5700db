"""What is known of a run without training it: its record, how far it came, how fast."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.training import RunFolder


@dataclass(frozen=True)
class Standing:
    """A run's record (run.json), the state of its newest checkpoint, and what was odd about its checkpoints."""

    run: RunFolder
    record: dict[str, Any]
    state: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def settings(self) -> dict[str, Any]:
        return dict(self.record["config"])

    @property
    def speed(self) -> float | None:
        """Target tokens a second, the median of the points in metrics.jsonl."""
        if not self.run.metrics.is_file():
            return None
        points = map(_point, self.run.metrics.read_text(encoding="utf-8").splitlines())
        speeds = [point["tokens_per_second"] for point in points if "tokens_per_second" in point]
        return median(speeds) if speeds else None

    def changed(self) -> dict[str, Any]:
        """The settings that are not what the recipe would have taken."""
        usual = plain_settings(self.record["recipe"])
        return {name: value for name, value in self.settings.items() if value != usual.get(name)}


def standing(folder: Path) -> Standing:
    """Read a run."""
    from regard.errors import CheckpointCorruptError
    from regard.tasks import read_record
    from regard.training import RunFolder, checkpoint

    run = RunFolder.open(folder)
    notes: list[str] = []
    try:
        found = checkpoint.load_latest(run.checkpoints, notes.append)
    except CheckpointCorruptError as error:
        found = None
        notes.append(str(error))
    return Standing(run, read_record(run), {} if found is None else found.state, tuple(notes))


def plain_settings(recipe: str, words: tuple[str, ...] = (), **given: Any) -> dict[str, Any]:
    """The settings of a recipe as JSON would keep them."""
    from regard.tasks import make_config

    settled = make_config(recipe, words, **given).to_dict()
    return {key: list(value) if isinstance(value, tuple) else value for key, value in settled.items()}


def reports(data: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What became of the pairs or documents that were read, in words; nothing about what is made on the fly."""
    from dataclasses import fields

    from regard.data import DataReport
    from regard.data.document_splitter import DocumentReport
    from regard.data.passages import PassageReport

    kinds: dict[str, Any] = {"max_sentences": DocumentReport, "passages": PassageReport}

    def told(counts: Mapping[str, Any]) -> str:
        kind = next((kind for key, kind in kinds.items() if key in counts), DataReport)
        known = {one.name for one in fields(kind)}
        return str(kind(**{name: value for name, value in counts.items() if name in known}))

    return [(name, told(counts)) for name, counts in data.items() if counts["read"]]


def _point(line: str) -> dict[str, Any]:
    try:
        return dict(json.loads(line))
    except ValueError:
        return {}  # the last line of a run that was killed, perhaps
