"""Epochs and batch sizes of recipes, and callbacks of their trainings."""

import pytest

from regard.data.sources import ResumableBatches
from regard.errors import ConfigError
from regard.tasks import RECIPES, resume, train
from regard.training import Callback, RunFolder, checkpoint
from tests.tasks.tiny_runs import FILES, quiet, write_pairs

SMALL = [one for one in FILES if not one.startswith(("steps", "batch_tokens"))]


class Sizes(Callback):
    def __init__(self):
        self.steps = []

    def on_step(self, state):
        self.steps.append(state.step)


@pytest.fixture
def files(tmp_path):
    paths = write_pairs(tmp_path / "data", "two")
    return [f"train_files={paths}", f"valid_files={paths}"]


def test_epochs_and_batch_size_of_a_translator(files, tmp_path):
    """Thirty-six pairs in batches of ten are four batches."""
    counter, run = Sizes(), tmp_path / "run"
    result = train("translation", run, [*SMALL, *files, "epochs=2", "batch_size=10"], log=quiet, callbacks=[counter])
    assert (result.step, result.stop_reason) == (8, "all 8 steps are done")
    assert counter.steps == list(range(1, 9))
    position = checkpoint.load_latest(run / "checkpoints").state["data_position"]
    assert (position["epoch"], position["batch"]) == (2, 0)
    counter.steps.clear()
    assert resume(run, log=quiet, epochs=3, callbacks=[counter]).step == 12
    assert counter.steps == list(range(9, 13))
    assert resume(run, log=quiet, steps=13).step == 13
    assert RunFolder.open(run).read_record()["config"]["epochs"] is None


def test_epochs_of_generated_data_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="epochs: the pairs of this data are generated without end; give steps"):
        train("reverse", tmp_path / "run", ["epochs=2"], log=quiet)
    assert not (tmp_path / "run").exists()


def test_a_batch_size_of_documents_and_of_passages(tmp_path):
    from regard.data import Tokenizer
    from regard.data.passages import PassageBatches

    words = ["a b c d", "a", "b c", "d d d d d d"] * 3
    tokenizer = Tokenizer.train(words, model_type="word", vocab_size=20)
    sources: list[ResumableBatches] = [
        PassageBatches(words, tokenizer, length=8, max_tokens=20),
        PassageBatches(words, tokenizer, length=8, max_rows=5),
    ]
    by_tokens, by_rows = ([len(next(stream)[0]) for _ in range(3)] for stream in (one.batches() for one in sources))
    assert sorted(by_rows) == [2, 5, 5]
    assert by_tokens != by_rows
    assert sources[1].batches_per_epoch() == 3
    assert sources[0].fingerprint != sources[1].fingerprint


def test_every_recipe_has_a_batch_size():
    assert all(recipe.config_class.option("batch_size") for recipe in RECIPES.values())
