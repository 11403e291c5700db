"""From a recipe to a trained model in a folder, and back."""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, get_type_hints

import torch

from regard._version import __version__
from regard.data import Corpus, DataError, Filling, Generated, Pair, Report, Stream, Tokenizer, in_order
from regard.data.readers import Parallel
from regard.recipes import _models
from regard.recipes._material import DOWNLOAD, Material, pairs
from regard.recipes._parse import SettingError, restore, settle
from regard.recipes._parse import given as given_value
from regard.recipes._recipes import Recipe, recipe
from regard.recipes.evaluation import measures
from regard.recipes.objective import NextWord
from regard.recipes.settings import Translation
from regard.recipes.translator import Translator
from regard.training import Outcome, Run, Source, distributed, fill, fit, load_weights

FORMAT = 1
WAIT = 60.0  # seconds for the first process to make a run's folder
CHANGEABLE = ("steps", "minutes", "patience", "validate_every", "save_every", "keep", "tensorboard")
TOKENS = ("tokenizer", "target_tokenizer", "vocab", "joint", "nfkc", "lowercase")
Say = Callable[[str], None]


@dataclass(frozen=True)
class Experiment:
    """All that is needed to train: data, model, and how to measure it."""

    run: Run
    settings: Translation
    objective: NextWord
    data: Source
    translator: Translator
    valid: Sequence[Pair]

    def fit(self, say: Say | None = None) -> Outcome:
        return fit(self.objective, self.data, self.settings, self.run, self.validate, say)

    def validate(self) -> dict[str, float]:
        """The loss on the validation text, and the quality of greedy translations of it if that is watched."""
        scores = loss_on(self.objective, self.translator, self.valid)
        watch = self.settings.watch
        if watch in ("bleu", "chrf", "exact"):
            greedy = self.translator.decoding(method="greedy")
            best = self.translator.search([pair.source for pair in self.valid], greedy)
            answers = [self.translator.text(several[0] if several else None) for several in best]
            found = measures(answers, [pair.target for pair in self.valid], self.settings)
            scores |= {name: found[name] for name in (("exact",) if watch == "exact" else ("bleu", "chrf"))}
        return scores


def settings_of(name: str, words: Iterable[str] = (), **given: Any) -> Translation:
    """The settings of a recipe with changes: as typed words, as values, or both."""
    found = recipe(name)
    return settle(found.kind, {**found.defaults, **given}, words)


def train(
    name: str,
    out: str | Path,
    words: Iterable[str] = (),
    *,
    init_from: str | Path | None = None,
    say: Say | None = None,
    **given: Any,
) -> Outcome:
    """Train a recipe into a new folder.

    The tokenizers are learned from the training text and kept in the folder, with everything that is needed
    to go on later, or to translate.
    """
    found, settings = recipe(name), _at_home(settings_of(name, words, **given))
    origin = None if init_from is None else Run.open(init_from)
    if origin is not None:
        kept = read(origin)["settings"]
        settings = replace(settings, **{key: kept[key] for key in TOKENS})
    found.material(settings)  # what is wrong with files or settings is said before a folder is made
    with torch.device("meta"):
        _models.build(settings, 8, 8)
    run = Run.create(out)
    if distributed.world().first and not run.record.is_file():  # torchrun, restarting, finds it there
        run.write(_record(found, settings, None if origin is None else str(origin.folder.resolve())))
    try:
        return _go_on(run, say)
    except Exception:
        _withdraw(run)
        raise


def _withdraw(run: Run) -> None:
    """A run that never began leaves its folder free, so that who mends what was wrong can use it again."""
    if distributed.world().first and not run.checkpoints.is_dir():
        for path in (run.record, *_tokenizer_files(run), run.log, run.metrics, run.folder / ".lock"):
            path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # something else is in it
            run.folder.rmdir()


def resume(folder: str | Path, say: Say | None = None, **changes: Any) -> Outcome:
    """Go on with a run from its newest checkpoint; how long and how often may change, what is trained may not."""
    run = Run.open(folder)
    if changes:
        record = read(run)
        hints = get_type_hints(Translation)
        for name, value in changes.items():
            given_value(Translation, name, value, hints)
            if name not in CHANGEABLE:
                raise SettingError(
                    f"{name} cannot change in a run that has begun; of these you may: {', '.join(CHANGEABLE)}"
                )
        settings = settle(Translation, {**asdict(restore(Translation, record["settings"])), **changes})
        run.write({**record, "settings": asdict(settings)})
    return _go_on(run, say)


def _go_on(run: Run, say: Say | None) -> Outcome:
    """Train a run from wherever it is; under torchrun, all processes come here."""
    distributed.start(distributed.choose_device(restore(Translation, _first(run)["settings"]).device))
    record = read(run)
    found, settings = recipe(record["recipe"]), restore(Translation, record["settings"])
    _ready(run, found, settings, record["init_from"])
    experiment, reports = prepare(run, found, settings, *tokenizers(run))
    if not run.checkpoints.is_dir():
        if record["init_from"] is not None:
            _begin_with(experiment.objective, Run.open(record["init_from"]))
        if distributed.world().first:
            run.write({**record, **_facts(experiment, reports)})
            for name, report in ((name, report) for name, report in reports.items() if report.read):
                (say or _to_stderr)(f"{name}: {report}")
    outcome = experiment.fit(say)
    distributed.stop()
    return outcome


def _begin_with(objective: NextWord, other: Run) -> None:
    """The weights of another run; its baseline, which is no weight, may be missing or too much."""
    weights = load_weights(other.weights())
    weights.pop("baseline", None)
    if objective.sampled:
        weights["baseline"] = objective.baseline
    fill(objective, weights, str(other.folder))


def _tokenizer_files(run: Run) -> list[Path]:
    return [run.folder / "source.json", run.folder / "target.json"]


def _first(run: Run) -> dict[str, Any]:
    """run.json, as soon as the first process has written it."""
    patience = time.monotonic() + WAIT
    while not distributed.world().first and not run.record.is_file() and time.monotonic() < patience:
        time.sleep(0.1)
    return read(run)


def _ready(run: Run, found: Recipe, settings: Translation, init_from: str | None) -> None:
    """See to it that the run has its tokenizers: learned from its text, or those of the run it starts from."""
    paths = _tokenizer_files(run)
    if distributed.world().first and not all(path.is_file() for path in paths):
        both = (
            learn(found.material(settings), settings)
            if init_from is None
            else tokenizers(Run.open(init_from))
        )
        for tokenizer, path in zip(both, paths, strict=True):
            tokenizer.save(path.with_suffix(".part"))
            path.with_suffix(".part").replace(path)
    distributed.wait()


def load(folder: str | Path, device: str = "cpu", weights: str | Path | None = None) -> Translator:
    """The model of a run, ready to translate: its averaged weights, else its best, else its last."""
    run = Run.open(folder)
    record = read(run)
    settings = restore(Translation, record["settings"])
    source, target = tokenizers(run)
    objective = _objective(settings, source, target)
    path = run.weights() if weights is None else Path(weights)
    fill(objective, load_weights(path), str(path))
    objective.to(device)
    return Translator(objective.model, source, target, settings, recipe(record["recipe"]))


def read(run: Run) -> dict[str, Any]:
    """run.json, if this version of regard can read it."""
    record = run.read()
    if record.get("format") != FORMAT:
        raise SettingError(
            f"{run.record} has format {record.get('format')!r}, but this regard reads {FORMAT}; install a newer regard"
        )
    return record


def learn(material: Material, settings: Translation) -> tuple[Tokenizer, Tokenizer]:
    """The tokenizers of both sides; one and the same if they are joint."""

    def cut(texts: Iterable[str], kind: str) -> Tokenizer:
        return Tokenizer.learn(texts, kind, settings.vocab, nfkc=settings.nfkc, lowercase=settings.lowercase)

    if settings.joint:
        both = cut(
            (text for pair in material.texts() for text in (pair.source, pair.target)), settings.tokenizer
        )
        return both, both
    return (
        cut((pair.source for pair in material.texts()), settings.tokenizer),
        cut((pair.target for pair in material.texts()), settings.target_tokenizer or settings.tokenizer),
    )


def tokenizers(run: Run) -> tuple[Tokenizer, Tokenizer]:
    """The tokenizers that a run keeps."""
    source, target = map(Tokenizer.load, _tokenizer_files(run))
    return source, target


def prepare(
    run: Run, found: Recipe, settings: Translation, source: Tokenizer, target: Tokenizer
) -> tuple[Experiment, dict[str, Report]]:
    """Data, model and measures, and what became of the pairs that were read."""
    torch.manual_seed(settings.seed)  # the weights to begin with
    objective = _objective(settings, source, target)
    translator = Translator(objective.model, source, target, settings, found)
    material = found.material(settings)
    data, report = _data(material, settings, source, target)
    valid, checked = _usable(material.valid, settings, source, target)
    experiment = Experiment(run, settings, objective, data, translator, valid)
    return experiment, {"train": report, "valid": checked}


def _objective(settings: Translation, source: Tokenizer, target: Tokenizer) -> NextWord:
    model = _models.build(settings, len(source), len(target))
    return NextWord(model, settings.smoothing, settings.entropy, settings.discount)


def _data(
    material: Material, settings: Translation, source: Tokenizer, target: Tokenizer
) -> tuple[Corpus | Stream | Generated, Report]:
    filling = Filling(
        tokens=settings.batch_tokens,
        max_length=settings.max_length,
        over=settings.too_long,
        dropout=settings.bpe_dropout,
        seed=settings.seed,
    )
    if settings.stream:
        if not isinstance(material.train, Parallel):
            raise SettingError("stream=on is for files; this recipe does not read its training text from any")
        stream = Stream(material.train, source, target, filling)
        return stream, stream.survey()
    if callable(material.train):
        made = Generated(material.train, source, target, filling)
        return made, made.report
    corpus = Corpus(material.train, source, target, filling)
    return corpus, corpus.report


def _usable(
    part: Parallel | Sequence[Pair], settings: Translation, source: Tokenizer, target: Tokenizer
) -> tuple[list[Pair], Report]:
    """The pairs of a validation set within the limits, and a count of the others."""
    report, used = Report(settings.max_length, "drop"), []
    for line, pair in enumerate(pairs(part), 1):
        longest = max(len(source.encode(pair.source)), len(target.encode(pair.target)))
        empty = not (pair.source.strip() and pair.target.strip())
        report.note("empty" if empty else "long" if longest > settings.max_length else "used", line)
        if not empty and longest <= settings.max_length:
            used.append(pair)
    if not used:
        raise DataError(f"nothing is left to validate with: {report}")
    return used, report


def loss_on(objective: NextWord, translator: Translator, part: Sequence[Pair]) -> dict[str, float]:
    """Cross entropy a token, without smoothing, and its exponential."""
    total = count = 0.0
    for batch, _ in in_order(part, translator.source, translator.target):
        loss = objective(batch.to(translator.device))
        total, count = total + float(loss.extra["nll"]), count + loss.count
    return {"loss": total / count, "perplexity": math.exp(min(total / count, 100.0))}


def _record(found: Recipe, settings: Translation, init_from: str | None) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "regard": __version__,
        "recipe": found.name,
        "settings": asdict(settings),
        "init_from": init_from,
    }


def _facts(experiment: Experiment, reports: Mapping[str, Report]) -> dict[str, Any]:
    return {
        "words": [len(experiment.translator.source), len(experiment.translator.target)],
        "parameters": sum(p.numel() for p in experiment.objective.parameters()),
        "data": {name: report.as_dict() for name, report in reports.items()},
    }


def _at_home(settings: Translation) -> Translation:
    """The same settings with paths that hold from any folder, as a run may be resumed from another one."""
    train, valid, test = (
        tuple(str(Path(file).resolve()) for file in files)
        for files in (settings.train, settings.valid, settings.test)
    )
    data = settings.data
    if data is not None and data != DOWNLOAD:
        data = str(Path(data).resolve())
    return replace(settings, train=train, valid=valid, test=test, data=data)


def _to_stderr(line: str) -> None:
    sys.stderr.write(line + "\n")
