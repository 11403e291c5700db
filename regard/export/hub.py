"""`regard push`: an exported model on the hub of Hugging Face, with a model card."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard._imports import require_extra
from regard._version import __version__
from regard.errors import DownloadError, ExportError, UnsupportedError, UsageError
from regard.export.exporter import export
from regard.export.folder import CARD_FILE, read_record
from regard.tasks import registry
from regard.tasks.loading import evaluate

__all__ = ["CardFacts", "publish_card", "push"]

HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
UNKNOWN = "Not stated by the publisher."
PIPELINES = {"translation": "translation", "text-generation": "text-generation", "fill-mask": "fill-mask"}


@dataclass(frozen=True)
class CardFacts:
    """What a model card says beyond what a run records.

    Args:
        license: an identifier of the hub, such as "apache-2.0"
        data: what the model was trained on, in a sentence
        limits: what it is not for, in a sentence
        metrics: rows of split, metric, value and the command that computes it
    """

    license: str | None = None
    data: str | None = None
    limits: str | None = None
    metrics: Sequence[tuple[str, str, float, str]] = ()


def push(
    folder: str | Path,
    name: str,
    facts: CardFacts = CardFacts(),
    *,
    private: bool = False,
    measure: bool = False,
    token: str | None = None,
) -> str:
    """Upload a run, in the layout of `transformers` if there is one, or an exported folder.

    Args:
        folder: of a run or of an exported model
        name: on the hub, such as "user/model"; it is created if it does not exist
        facts: for the model card
        private: whether a new repository is private
        measure: evaluate the run on the tests of its recipe, for the card
        token: of the hub; the one that `hf auth login` has saved if None

    Returns:
        The address of the model.

    Example:
        push("runs/en-de", "me/en-de", CardFacts(license="mit"), private=True)
    """
    if not HUB_NAME.fullmatch(name):
        raise UsageError(
            f"invalid name {name!r}: expected user/model, of letters, digits, dots, dashes and underscores"
        )
    if registry.is_checkpoint(folder):
        raise UnsupportedError(f"{folder} is a checkpoint of Hugging Face; upload it with: hf upload {name} {folder}")
    hub = require_extra("huggingface_hub", extra="transformers")
    if measure:
        facts = CardFacts(facts.license, facts.data, facts.limits, (*facts.metrics, *_measure(folder)))
    with _exported(Path(folder)) as exported:
        card = exported / CARD_FILE
        before = card.read_text(encoding="utf-8") if card.is_file() else None
        card.write_text(publish_card(read_record(exported), name, facts), encoding="utf-8")
        try:
            api = hub.HfApi(token=token)
            api.create_repo(name, private=private, exist_ok=True)
            message = f"Upload a model of regard {__version__}"
            api.upload_folder(repo_id=name, folder_path=str(exported), commit_message=message)
            return f"{api.endpoint}/{name}"
        except (OSError, ValueError) as error:  # HTTP errors, a missing token
            raise DownloadError(f"{name} was not uploaded: {str(error).strip().splitlines()[0]}") from error
        finally:
            if before is not None:
                card.write_text(before, encoding="utf-8")


def _measure(folder: str | Path) -> Iterator[tuple[str, str, float, str]]:
    command = f"regard evaluate {Path(folder).name}"
    for split, report in evaluate(folder).items():
        for metric, value in report.metrics.items():
            yield split, metric, value, f"{command} --split {split}"


@contextmanager
def _exported(folder: Path) -> Iterator[Path]:
    """The folder, if it is an export; else a temporary one, for transformers if it has a counterpart of the model."""
    if registry.is_export(folder):
        yield folder
        return
    with tempfile.TemporaryDirectory() as parent:
        out = Path(parent) / "model"
        try:
            export(folder, "transformers", out)
        except ExportError:
            export(folder, "safetensors", out)
        yield out


def publish_card(record: Mapping[str, Any], name: str, facts: CardFacts) -> str:
    """The model card of a published model.

    Args:
        record: content of export.json
        name: on the hub
        facts: what the record does not say

    Returns:
        the text of README.md

    Example:
        >>> record = {"task": "translation", "recipe": "dates", "config": {}, "to": "safetensors"}
        >>> publish_card(record, "me/dates", CardFacts(license="mit")).splitlines()[1:3]
        ['library_name: regard', 'license: mit']
    """
    config, is_transformers = record["config"], record["to"] == "transformers"
    header = [f"library_name: {'transformers' if is_transformers else 'regard'}"]
    header += [f"license: {facts.license}"] if facts.license else []
    header += [f"pipeline_tag: {PIPELINES[record['task']]}"] if record["task"] in PIPELINES else []
    languages = str(config.get("language_pair") or "").split("-")
    header += [f"language:\n{chr(10).join(f'- {one}' for one in languages)}"] if all(languages) else []
    scores = {key: one for key, one in (record.get("scores") or {}).items() if isinstance(one, int | float)}
    command = f"regard train {record['recipe']}"
    rows = [("validation (selected the weights)", key, value, command) for key, value in scores.items()]
    table = [f"| {split} | {metric} | {value:.4g} | `{run}` |" for split, metric, value, run in (*facts.metrics, *rows)]
    changed = " ".join(
        f"{key}={_format(value)}" for key, value in sorted(config.items()) if value not in (None, (), [])
    )
    loader = {"translation": "AutoModelForSeq2SeqLM", "text-generation": "AutoModelForCausalLM"}.get(record["task"], "")
    theirs = (
        f"from transformers import AutoTokenizer, {loader}\n\n"
        f'tokenizer, model = AutoTokenizer.from_pretrained("{name}"), {loader}.from_pretrained("{name}")\n\n'
    )
    parts = [
        "---\n" + "\n".join([*header, "tags:\n- regard\n- attention"]) + "\n---",
        f"# {name.partition('/')[2]}",
        f"A model for {record['task']}, trained by [regard](https://pypi.org/project/regard/) {__version__} with the"
        f" recipe `{record['recipe']}`.",
        "## Use it",
        "```python\n"
        + (theirs if is_transformers else "")
        + "import regard\nfrom huggingface_hub import snapshot_download\n\n"
        f'predictor = regard.load(snapshot_download("{name}"))\n```',
        "## Metrics",
        "\n".join(["| split | metric | value | command |", "|---|---|---:|---|", *table]) if table else UNKNOWN,
        f"## Data\n\n{facts.data or UNKNOWN}",
        f"## License\n\n{facts.license or UNKNOWN}",
        f"## Limits\n\n{facts.limits or UNKNOWN}",
        f"## Options of the training\n\n```\n{changed}\n```",
    ]
    return "\n\n".join(parts) + "\n"


def _format(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
