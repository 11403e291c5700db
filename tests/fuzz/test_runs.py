"""Runs with damaged files: loaded as they were, or refused in a sentence."""

import json
import random
import shutil
import traceback

import pytest

from tests.fuzz.conftest import num_trials
from tests.fuzz.damage import alter_value, corrupt, forbid_code, memory_limit, remove_checksums
from tests.serving.servers import tiny_run
from tests.tasks.fixtures_reviews import reviews, write_tsv

pytestmark = pytest.mark.bare  # so that wrong types are found by regard and not by the shape checks
FILES = {
    "translation": (
        "run.json",
        "processor/processor.json",
        "processor/source.json",
        "processor/target.json",
        "weights/best.safetensors",
    ),
    "documents": ("run.json", "processor/processor.json", "processor/tokenizer.json", "weights/best.safetensors"),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    from regard.tasks import train

    folder = tmp_path_factory.mktemp("fuzzed")
    files = {
        f"{name}_files": (write_tsv(folder / f"{name}.tsv", reviews(30, seed)),)
        for seed, name in enumerate(("train", "valid"))
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
    runs = {"translation": tiny_run(folder / "translation"), "documents": folder / "documents"}
    for run in runs.values():
        remove_checksums(run)
    return runs


def require_sentence(error):
    """The sentence that the command line would print; an error that has none is a bug."""
    from regard.cli.main import to_regard_error

    known = to_regard_error(error)
    assert known is not None, "".join(traceback.format_exception(error))
    assert len(str(known)) < 2_000
    return str(known)


@pytest.mark.parametrize("kind", FILES)
def test_a_damaged_run_is_refused_in_a_sentence(runs, kind, tmp_path, time_limit):
    from regard.tasks import load

    rng, refused = random.Random(f"{kind} {num_trials(0, 1)}"), 0
    count = num_trials(60, 700)
    for number in range(count):
        run = tmp_path / "run"
        shutil.copytree(runs[kind], run)
        file = run / FILES[kind][number % len(FILES[kind])]
        file.write_bytes(corrupt_file(file, rng))
        with time_limit(), memory_limit(), forbid_code():
            try:
                use_model(load(run))
            except Exception as error:
                require_sentence(error)
                refused += 1
        shutil.rmtree(run)
    assert refused > count / 2


def corrupt_file(file, rng):
    """The file damaged; of run.json mostly one of the settings."""
    content = file.read_bytes()
    if file.name != "run.json" or rng.random() < 0.4:
        return corrupt(content, rng)
    record = json.loads(content)
    return json.dumps({**record, "config": alter_value(record["config"], rng)}).encode("utf-8", "surrogatepass")


def use_model(model):
    """A model that could be loaded can also be used, or says what is wrong with it."""
    model.predict(["A superb plot. It then saw the city.", "x"])


def test_a_damaged_checkpoint_is_skipped(runs, tmp_path, time_limit):
    from regard.training import checkpoint

    rng = random.Random(num_trials(2, 3))
    folder = tmp_path / "checkpoints"
    original = list(checkpoint.list_steps(runs["translation"] / "checkpoints").values())[-1]
    for number in range(num_trials(60, 600)):
        shutil.copytree(original, folder / original.name)
        file = (
            folder
            / original.name
            / (checkpoint.MODEL_FILE, checkpoint.TRAINING_FILE, checkpoint.STATE_FILE)[number % 3]
        )
        before = file.read_bytes()
        file.write_bytes(corrupt(before, rng))
        with time_limit(), memory_limit(), forbid_code():
            try:
                checkpoint.load_latest(folder)
                same = checkpoint.load(original).state == checkpoint.load(folder / original.name).state
                assert same  # only what does not matter was corrupt, such as a space in JSON
            except ValueError as error:
                require_sentence(error)
        shutil.rmtree(folder)
