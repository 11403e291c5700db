"""Recipes of machines with a memory: trained, resumed, loaded, judged."""

import pytest
import torch

from regard.data.algorithms import DynamicNGrams
from regard.data.sources import seeded_generator
from regard.errors import ConfigError
from regard.tasks import AlgorithmPredictor, load, load_translator, make_config, resume, train
from regard.tasks.algorithms.predictor import MemoryTrace, bits_per_sequence, optimal_cost
from regard.training import RunFolder, load_weights
from tests.recipes.tiny import quiet

TINY = [
    "max_size=2",
    "num_bits=3",
    "hidden_dim=12",
    "memory_rows=6",
    "memory_width=5",
    "batch_size=4",
    "steps=6",
    "validate_every=3",
]
TINY += ["save_every=2", "num_threads=1", "schedule=constant"]


@pytest.fixture(scope="module")
def copied(tmp_path_factory):
    folder = tmp_path_factory.mktemp("machines") / "copy"
    train("copy", folder, TINY, log=quiet)
    return folder


def test_a_run_gives_a_machine(copied):
    machine = load(copied)
    assert isinstance(machine, AlgorithmPredictor)
    assert machine.max_training_sizes == {"length": 2}
    assert machine.model.memory_rows == 6


def test_a_machine_does_not_translate(copied):
    with pytest.raises(ConfigError, match="was trained for copy and cannot translate"):
        load_translator(copied)


def test_an_interrupted_run_goes_on_bit_for_bit(copied, tmp_path):
    folder = tmp_path / "run"
    train("copy", folder, [*TINY, "steps=2"], log=quiet)
    resume(folder, log=quiet, steps=6)
    whole, again = (load_weights(RunFolder.open(one).find_weights()) for one in (copied, folder))
    assert whole.keys() == again.keys()
    assert all(torch.equal(whole[name], again[name]) for name in whole)


def test_what_is_counted(copied):
    machine = load(copied)
    found = machine.evaluate(num_sequences=25, length=4)
    assert found["of"] == 25 * 4 * 3
    assert found["length"] == 4
    assert found["errors"] == pytest.approx(100 * found["wrong"] / found["of"])
    same = machine.evaluate(num_sequences=25, length=4)
    assert found == same


def test_costs_are_in_bits():
    outputs, targets = torch.zeros(2, 3, 4), torch.ones(2, 3, 4)
    torch.testing.assert_close(
        bits_per_sequence(outputs, targets), torch.full((2,), 12.0)
    )  # a fair coin for each


def test_a_larger_memory_may_be_used(copied):
    machine = load(copied)
    assert machine.evaluate(num_sequences=3, memory_rows=40, length=9)["rows"] == 40
    batch = machine.algorithm.sample(seeded_generator(0), 3, length=9).inputs
    large, usual = machine.compute_logits(batch, memory_rows=40), machine.compute_logits(batch)
    assert not torch.equal(large, usual)
    torch.testing.assert_close(usual, machine.compute_logits(batch, memory_rows=24), atol=0, rtol=0)


def test_a_longer_sequence_gets_a_larger_memory(copied):
    machine = load(copied)
    rows = [machine.evaluate(num_sequences=2, length=length)["rows"] for length in (1, 2, 3, 9)]
    assert rows == [6, 6, 12, 24]  # 2 vectors, the longest of training, take 5 steps
    assert machine.explain(length=9).memory.shape == (19, 24, 5)


def test_a_tape_shows_every_step(copied):
    tape = load(copied).explain(length=2)
    assert tape.read_weights.shape == tape.write_weights.shape == (5, 1, 6)
    assert tape.memory.shape == (5, 6, 5)
    assert tape.add_vectors.shape == (5, 1, 5)
    torch.testing.assert_close(tape.read_weights.sum(-1), torch.ones(5, 1))
    torch.testing.assert_close(tape.read_vectors, tape.read_weights @ tape.memory)
    assert tape.target_mask.tolist() == [False, False, False, True, True]
    torch.testing.assert_close(tape.masked_outputs, tape.outputs * tape.target_mask[:, None])


@pytest.mark.parametrize("name", ["repeat-copy", "recall", "ngrams", "sort"])
def test_every_recipe_trains(name, tmp_path):
    sizes = {
        "repeat-copy": ["max_repeats=2"],
        "recall": ["max_size=3"],
        "ngrams": ["min_size=7", "max_size=9"],
    }
    sizes["sort"] = ["min_size=5", "max_size=5"]
    words = [word for word in TINY if not word.startswith(("max_size", "num_bits"))] + sizes[name]
    outcome = train(name, tmp_path / "run", words, log=quiet)
    assert outcome.step == 6
    found = load(tmp_path / "run").evaluate(num_sequences=4)
    assert found["bits"] > 0
    assert ("best" in found) == (name == "ngrams")


def test_a_tape_shows_what_was_wanted(copied, tmp_path):
    tape = load(copied).explain(length=2)
    torch.testing.assert_close(tape.optimal_outputs, tape.targets * tape.target_mask[:, None])
    words = [word for word in TINY if not word.startswith(("max_size", "num_bits"))]
    train("ngrams", tmp_path / "run", [*words, "min_size=9", "max_size=9"], log=quiet)
    machine = load(tmp_path / "run")
    tape = machine.explain(length=9)
    best = machine.algorithm.optimal_prediction(
        tape.targets.T
    ).T  # of bits that cannot be known: the best guess
    torch.testing.assert_close(tape.optimal_outputs, best * tape.target_mask[:, None])


def test_the_baseline_has_no_memory(tmp_path):
    train("copy", tmp_path / "run", [*TINY, "model=lstm", "num_layers=1"], log=quiet)
    machine = load(tmp_path / "run")
    assert machine.evaluate(num_sequences=2)["of"] > 0
    with pytest.raises(ValueError, match="no memory"):
        machine.explain()
    with pytest.raises(ValueError, match="no memory"):
        machine.evaluate(memory_rows=9)


def test_best_cost_is_what_counting_costs():
    algorithm = DynamicNGrams({"length": (40, 40)}, num_bits=1)
    batch = algorithm.sample(seeded_generator(0), batch_size=3)
    best = algorithm.optimal_prediction(batch.targets[..., 0])
    said = torch.where(batch.targets[..., 0] > 0.5, best, 1 - best)[:, 5:]
    torch.testing.assert_close(optimal_cost(algorithm, batch), -said.log2().sum(1))


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["min_size=5", "max_size=2"], "invalid value '2' for max_size: must be at least min_size=5"),
        (["memory_rows=0"], "invalid value '0' for memory_rows: must be at least 1"),
        (["monitor=bleu"], "for monitor: expected one of loss, bits, errors"),
        (["score=dot"], "no option 'score'"),
        (["train_files=a.txt"], "no option 'train_files'"),
    ],
)
def test_settings_that_cannot_be(words, sentence):
    with pytest.raises(ConfigError, match=sentence):
        make_config("copy", words)


def test_weights_come_only_from_a_run_of_the_same_kind(copied, tmp_path):
    with pytest.raises(ConfigError, match="another kind of model"):
        train("reverse", tmp_path / "other", ["steps=1"], init_from=copied, log=quiet)
    outcome = train("copy", tmp_path / "more", [*TINY, "steps=1"], init_from=copied, log=quiet)
    assert outcome.step == 1


def test_the_sharpest_heads_are_those_that_stand_on_single_rows(copied):
    from dataclasses import replace

    tape = load(copied).explain(length=2)
    steps, rows = len(tape.inputs), tape.read_weights.shape[-1]
    flat, sharp = torch.full((steps, rows), 1 / rows), torch.eye(rows)[torch.arange(steps) % rows]
    readers, writers = torch.stack((flat, flat, sharp), 1), torch.stack((sharp, flat), 1)
    vectors = {
        "read_vectors": tape.read_vectors.expand(-1, 3, -1),
        "add_vectors": tape.add_vectors.expand(-1, 2, -1),
    }
    told = replace(tape, read_weights=readers, write_weights=writers, **vectors)
    assert told.sharpest_heads == (2, 0)


def looking(reads, writes):
    """A tape of heads that looked so."""
    steps, width = len(reads), 5
    blank = torch.zeros(steps, 3)
    return MemoryTrace(
        inputs=blank,
        outputs=blank,
        targets=blank,
        read_weights=reads,
        write_weights=writes,
        read_vectors=torch.zeros(steps, reads.shape[1], width),
        add_vectors=torch.zeros(steps, writes.shape[1], width),
        memory=torch.zeros(steps, reads.shape[-1], width),
        optimal_outputs=blank,
        target_mask=torch.ones(steps, dtype=torch.bool),
        num_wrong_bits=0,
        num_target_bits=9,
    )


def test_rows_in_use_of_heads_that_are_nowhere_sharp():
    blurred = torch.full((4, 1, 100), 0.002)
    blurred[:, :, 30:50] = 0.04  # the greatest weight, and still less than what a sharp head leaves beside it
    assert looking(blurred, blurred).used_rows().tolist() == list(range(30, 50))
    even = torch.full((4, 1, 100), 0.01)
    assert looking(even, even).used_rows().tolist() == list(range(100))
    broken = torch.full((4, 1, 100), float("nan"))
    assert looking(broken, broken).used_rows().tolist() == list(range(100))


def test_rows_in_use_begin_behind_the_widest_gap():
    reads = torch.zeros(4, 1, 8)
    reads[torch.arange(4), 0, torch.tensor([6, 7, 0, 2])] = 1.0
    assert looking(reads, reads).used_rows().tolist() == [6, 7, 0, 2]
    everywhere = torch.eye(8)[:, None]
    assert looking(everywhere, everywhere).used_rows().tolist() == list(range(8)), (
        "no gap: from the first row on"
    )


def test_a_head_is_chosen_on_every_side_that_has_it():
    reads = torch.stack((torch.full((4, 8), 1 / 8), torch.eye(8)[:4]), 1)
    writes = torch.stack((torch.eye(8)[:4], *[torch.full((4, 8), 1 / 8)] * 2), 1)
    tape = looking(reads, writes)
    assert tape.select_heads(None) == tape.sharpest_heads == (1, 0)
    assert tape.select_heads(0) == (0, 0)
    assert tape.select_heads(2) == (1, 2), "no third read head: the sharpest"
    for none in (3, -1):
        with pytest.raises(ValueError, match=rf"There is no head {none}; .* 2 read heads and 3 write heads"):
            tape.select_heads(none)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"memory_rows": 0}, "memory_rows=0 is too small"),
        ({"num_sequences": 0}, "num_sequences=0 is too small"),
    ],
)
def test_no_rows_and_no_sequences_are_refused(copied, given, sentence):
    with pytest.raises(ValueError, match=f"^{sentence}: it must be at least 1$"):
        load(copied).evaluate(**given)


def test_a_tape_and_outputs_of_no_rows_are_refused(copied):
    machine = load(copied)
    with pytest.raises(ValueError, match=r"^memory_rows=-1 is too small"):
        machine.explain(memory_rows=-1)
    with pytest.raises(ValueError, match=r"^memory_rows=0 is too small"):
        machine.compute_logits(torch.zeros(1, 5, 4), memory_rows=0)
