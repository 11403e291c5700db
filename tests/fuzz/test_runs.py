"""Runs with damaged files: loaded as they were, or refused in a sentence."""

import json
import random
import shutil
import traceback

import pytest

from tests.fuzz.conftest import tries
from tests.fuzz.damage import altered, damaged, memory_for, no_code_runs
from tests.serving.servers import tiny_run
from tests.tasks.fixtures_reviews import reviews, write_tsv

pytestmark = pytest.mark.bare  # wrong types are meant to meet our own words, not those of the shape checks
FILES = {
    "translation": ("run.json", "source.json", "target.json", "weights/best.safetensors"),
    "documents": ("run.json", "words.json", "labels.json", "weights/best.safetensors"),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    from regard.tasks import train

    folder = tmp_path_factory.mktemp("fuzzed")
    files = {
        name: (write_tsv(folder / f"{name}.tsv", reviews(30, seed)),) for seed, name in enumerate(("train", "valid"))
    }
    small = [
        "hidden_dim=8",
        "embed_dim=8",
        "vocab_size=60",
        "steps=2",
        "validate_every=2",
        "save_every=2",
        "num_threads=1",
    ]
    train("documents", folder / "documents", small, log=lambda line: None, **files)
    return {"translation": tiny_run(folder / "translation"), "documents": folder / "documents"}


def told(error):
    """The sentence that the command line would print; an error that has none is a bug."""
    from regard.cli.main import to_regard_error

    known = to_regard_error(error)
    assert known is not None, "".join(traceback.format_exception(error))
    assert len(str(known)) < 2_000
    return str(known)


@pytest.mark.parametrize("kind", FILES)
def test_a_damaged_run_is_refused_in_a_sentence(runs, kind, tmp_path, in_time):
    from regard.tasks import load

    chance, refused = random.Random(f"{kind} {tries(0, 1)}"), 0
    count = tries(60, 700)
    for number in range(count):
        run = tmp_path / "run"
        shutil.copytree(runs[kind], run)
        file = run / FILES[kind][number % len(FILES[kind])]
        file.write_bytes(harmed(file, chance))
        with in_time(), memory_for(), no_code_runs():
            try:
                used(load(run))
            except Exception as error:
                told(error)
                refused += 1
        shutil.rmtree(run)
    assert refused > count / 2


def harmed(file, chance):
    """The file damaged; of run.json mostly one of the settings."""
    content = file.read_bytes()
    if file.name != "run.json" or chance.random() < 0.4:
        return damaged(content, chance)
    record = json.loads(content)
    return json.dumps({**record, "config": altered(record["config"], chance)}).encode("utf-8", "surrogatepass")


def used(model):
    """A model that could be loaded can also be used, or says what is wrong with it."""
    if hasattr(model, "classify"):
        model.classify(["A superb plot. It then saw the city."])
    else:
        model.translate(["abc def", "x"])


def test_a_damaged_checkpoint_is_passed_over(runs, tmp_path, in_time):
    from regard.training import checkpoint

    chance = random.Random(tries(2, 3))
    folder = tmp_path / "checkpoints"
    whole = list(checkpoint.list_steps(runs["translation"] / "checkpoints").values())[-1]
    for number in range(tries(60, 600)):
        shutil.copytree(whole, folder / whole.name)
        file = (
            folder / whole.name / (checkpoint.MODEL_FILE, checkpoint.TRAINING_FILE, checkpoint.STATE_FILE)[number % 3]
        )
        before = file.read_bytes()
        file.write_bytes(damaged(before, chance))
        with in_time(), memory_for(), no_code_runs():
            try:
                checkpoint.load_latest(folder)
                same = checkpoint.load(whole).state == checkpoint.load(folder / whole.name).state
                assert same  # only what does not matter was damaged, such as a space in JSON
            except ValueError as error:
                told(error)
        shutil.rmtree(folder)
