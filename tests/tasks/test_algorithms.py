"""The algorithm task: training, resuming, loading, evaluation and memory traces."""

import json
import shutil

import pytest
import torch

from regard.data.algorithms import DynamicNGrams
from regard.data.sources import seeded_generator
from regard.errors import ConfigError, UnknownNameError, UnsupportedError, UsageError
from regard.tasks import AlgorithmPredictor, AttentionMap, Prediction, Processor, load, make_config, resume, train
from regard.tasks.algorithms.config import AlgorithmEvaluateOptions, AlgorithmExplainOptions
from regard.tasks.algorithms.memory_trace import MemoryTrace
from regard.tasks.algorithms.predictor import bits_per_sequence, optimal_cost
from regard.tasks.loading import evaluate
from regard.training import RunFolder, load_weights
from tests.tasks.tiny_runs import quiet

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
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "copy"
    train("copy", folder, TINY, log=quiet)
    return folder


def test_a_run_loads_as_a_predictor(run):
    predictor = load(run)
    assert isinstance(predictor, AlgorithmPredictor)
    assert predictor.max_training_sizes == {"length": 2}
    assert predictor.model.memory_rows == 6


def measure(predictor, num_sequences=20, **options):
    """The row of the report for one size."""
    report = predictor.evaluate([{}], AlgorithmEvaluateOptions(num_sequences=num_sequences, **options))
    (row,) = report.tables["sizes"]
    assert report.num_examples == row["sequences"] == num_sequences
    assert report.metrics.items() <= {**row, "loss": report.metrics["loss"]}.items()
    return row


def explain(predictor, **options):
    return predictor.explain(None, AlgorithmExplainOptions(**options))


def test_the_tests_of_a_recipe_are_the_sizes_of_training_and_of_the_paper(run):
    report = evaluate(run, options=AlgorithmEvaluateOptions(num_sequences=2))["test"]
    assert [row["length"] for row in report.tables["sizes"]] == [2, 30, 50, 120]
    assert report.num_examples == 8
    assert report.metrics["bits"] == report.tables["sizes"][0]["bits"]
    assert [row["length"] for row in evaluate(run, "valid")["valid"].tables["sizes"]] == [2]


def test_load_needs_no_recipe(run, tmp_path):
    shutil.copytree(run, tmp_path / "run")
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (record["task"], record["processor"]) == ("algorithm", {"algorithm": "copy"})
    RunFolder(tmp_path / "run").write_record({**record, "recipe": "unknown-copy"})
    assert measure(load(tmp_path / "run"), length=3) == measure(load(run), length=3)
    with pytest.raises(UnknownNameError, match="no recipe 'unknown-copy'"):
        resume(tmp_path / "run", log=quiet)


def test_sequences_are_predicted_bit_by_bit(run):
    predictor = load(run)
    trace = explain(predictor, length=2)
    (prediction,) = predictor.predict([trace.inputs])
    assert prediction.text.split() == ["".join(str(int(bit > 0.5)) for bit in step) for step in trace.outputs]
    likely = trace.outputs.where(trace.outputs > 0.5, 1 - trace.outputs)
    assert prediction.score == pytest.approx(float(likely.log().sum()), rel=1e-4)


def test_a_resumed_run_is_equal_bit_for_bit(run, tmp_path):
    folder = tmp_path / "resumed"
    train("copy", folder, [*TINY, "steps=2"], log=quiet)
    resume(folder, log=quiet, steps=6)
    expected, resumed = (load_weights(RunFolder.open(path).find_weights()) for path in (run, folder))
    assert expected.keys() == resumed.keys()
    assert all(torch.equal(expected[name], resumed[name]) for name in expected)


def test_evaluation_counts_bits_and_repeats_exactly(run):
    predictor = load(run)
    row = measure(predictor, 25, length=4)
    assert row["target_bits"] == 25 * 4 * 3
    assert row["length"] == 4
    assert row["errors"] == pytest.approx(100 * row["wrong_bits"] / row["target_bits"])
    assert measure(predictor, 25, length=4) == row
    assert measure(predictor, 25, length=4, seed=1) != row


def test_cost_is_in_bits():
    logits, targets = torch.zeros(2, 3, 4), torch.ones(2, 3, 4)
    torch.testing.assert_close(bits_per_sequence(logits, targets), torch.full((2,), 12.0))  # probability 1/2 for each


def test_memory_rows_can_be_changed(run):
    predictor = load(run)
    assert measure(predictor, 3, memory_rows=40, length=9)["memory_rows"] == 40
    inputs = predictor.algorithm.sample(seeded_generator(0), 3, length=9).inputs
    large, default = predictor.compute_logits(inputs, memory_rows=40), predictor.compute_logits(inputs)
    assert not torch.equal(large, default)
    torch.testing.assert_close(default, predictor.compute_logits(inputs, memory_rows=24), atol=0, rtol=0)


def test_memory_grows_with_the_sequence(run):
    predictor = load(run)
    rows = [measure(predictor, 2, length=length)["memory_rows"] for length in (1, 2, 3, 9)]
    assert rows == [6, 6, 12, 24]  # 2 vectors, the longest training sequence, are 5 steps
    assert explain(predictor, length=9).memory.shape == (19, 24, 5)


def test_trace_has_every_step(run):
    trace = explain(load(run), length=2)
    assert trace.read_weights.shape == trace.write_weights.shape == (5, 1, 6)
    assert trace.memory.shape == (5, 6, 5)
    assert trace.add_vectors.shape == (5, 1, 5)
    torch.testing.assert_close(trace.read_weights.sum(-1), torch.ones(5, 1))
    torch.testing.assert_close(trace.read_vectors, trace.read_weights @ trace.memory)
    assert trace.target_mask.tolist() == [False, False, False, True, True]
    torch.testing.assert_close(trace.masked_outputs, trace.outputs * trace.target_mask[:, None])


@pytest.mark.parametrize("name", ["repeat-copy", "recall", "ngrams", "sort"])
def test_train_every_algorithm(name, tmp_path):
    sizes = {"repeat-copy": ["max_repeats=2"], "recall": ["max_size=3"], "ngrams": ["min_size=7", "max_size=9"]}
    sizes["sort"] = ["min_size=5", "max_size=5"]
    overrides = [text for text in TINY if not text.startswith(("max_size", "num_bits"))] + sizes[name]
    result = train(name, tmp_path / "run", overrides, log=quiet)
    assert result.step == 6
    row = measure(load(tmp_path / "run"), 4)
    assert row["bits"] > 0
    assert ("best" in row) == (name == "ngrams")


def test_trace_has_the_optimal_outputs(run, tmp_path):
    trace = explain(load(run), length=2)
    torch.testing.assert_close(trace.optimal_outputs, trace.targets * trace.target_mask[:, None])
    overrides = [text for text in TINY if not text.startswith(("max_size", "num_bits"))]
    train("ngrams", tmp_path / "run", [*overrides, "min_size=9", "max_size=9"], log=quiet)
    predictor = load(tmp_path / "run")
    trace = explain(predictor, length=9)
    best = predictor.algorithm.optimal_prediction(trace.targets.T).T
    torch.testing.assert_close(trace.optimal_outputs, best * trace.target_mask[:, None])


def test_lstm_has_no_memory(tmp_path):
    train("copy", tmp_path / "run", [*TINY, "model=lstm", "num_layers=1"], log=quiet)
    predictor = load(tmp_path / "run")
    assert measure(predictor, 2)["target_bits"] > 0
    assert "memory_rows" not in measure(predictor, 2)
    assert not predictor.has_attention
    with pytest.raises(UnsupportedError, match="no memory"):
        predictor.explain(None)
    with pytest.raises(UnsupportedError, match="no memory"):
        measure(predictor, 2, memory_rows=9)


def test_optimal_cost_is_that_of_the_optimal_prediction():
    algorithm = DynamicNGrams({"length": (40, 40)}, num_bits=1)
    batch = algorithm.sample(seeded_generator(0), batch_size=3)
    best = algorithm.optimal_prediction(batch.targets[..., 0])
    probability = torch.where(batch.targets[..., 0] > 0.5, best, 1 - best)[:, 5:]
    torch.testing.assert_close(optimal_cost(algorithm, batch), -probability.log2().sum(1))


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["min_size=5", "max_size=2"], "invalid value '2' for max_size: must be at least min_size=5"),
        (["memory_rows=0"], "invalid value '0' for memory_rows: must be at least 1"),
        (["monitor=bleu"], "for monitor: expected one of loss, bits, errors"),
        (["score=dot"], "no option 'score'"),
        (["train_files=a.txt"], "no option 'train_files'"),
    ],
)
def test_invalid_options(overrides, message):
    with pytest.raises(ConfigError, match=message):
        make_config("copy", overrides)


def test_init_from_needs_a_run_of_the_same_task(run, tmp_path):
    with pytest.raises(ConfigError, match="another kind of model"):
        train("reverse", tmp_path / "other", ["steps=1"], init_from=run, log=quiet)
    result = train("copy", tmp_path / "more", [*TINY, "steps=1"], init_from=run, log=quiet)
    assert result.step == 1


def test_sharpest_heads_are_those_on_single_rows(run):
    from dataclasses import replace

    trace = explain(load(run), length=2)
    steps, rows = len(trace.inputs), trace.read_weights.shape[-1]
    flat, sharp = torch.full((steps, rows), 1 / rows), torch.eye(rows)[torch.arange(steps) % rows]
    readers, writers = torch.stack((flat, flat, sharp), 1), torch.stack((sharp, flat), 1)
    vectors = {"read_vectors": trace.read_vectors.expand(-1, 3, -1), "add_vectors": trace.add_vectors.expand(-1, 2, -1)}
    changed = replace(trace, maps=make_maps(readers, writers), **vectors)
    assert changed.sharpest_heads == (2, 0)


def make_maps(reads, writes):
    """The maps of a trace, from weights (steps, heads, rows)."""
    return tuple(AttentionMap(name, one.transpose(0, 1), (), ()) for name, one in (("write", writes), ("read", reads)))


def make_trace(reads, writes):
    """A trace with these weights of the heads."""
    steps, width = len(reads), 5
    blank = torch.zeros(steps, 3)
    return MemoryTrace(
        prediction=Prediction("", 0.0),
        maps=make_maps(reads, writes),
        name="copy",
        inputs=blank,
        outputs=blank,
        targets=blank,
        read_vectors=torch.zeros(steps, reads.shape[1], width),
        add_vectors=torch.zeros(steps, writes.shape[1], width),
        memory=torch.zeros(steps, reads.shape[-1], width),
        optimal_outputs=blank,
        target_mask=torch.ones(steps, dtype=torch.bool),
        num_wrong_bits=0,
        num_target_bits=9,
    )


def test_used_rows_of_heads_without_a_sharp_weight():
    blurred = torch.full((4, 1, 100), 0.002)
    blurred[:, :, 30:50] = 0.04  # the largest weight, below the threshold of a sharp head
    assert make_trace(blurred, blurred).used_rows().tolist() == list(range(30, 50))
    even = torch.full((4, 1, 100), 0.01)
    assert make_trace(even, even).used_rows().tolist() == list(range(100))
    broken = torch.full((4, 1, 100), float("nan"))
    assert make_trace(broken, broken).used_rows().tolist() == list(range(100))


def test_used_rows_begin_after_the_widest_gap():
    reads = torch.zeros(4, 1, 8)
    reads[torch.arange(4), 0, torch.tensor([6, 7, 0, 2])] = 1.0
    assert make_trace(reads, reads).used_rows().tolist() == [6, 7, 0, 2]
    everywhere = torch.eye(8)[:, None]
    assert make_trace(everywhere, everywhere).used_rows().tolist() == list(range(8)), (
        "without a gap: from the first row"
    )


def test_select_heads_takes_the_sharpest_where_the_number_is_missing():
    reads = torch.stack((torch.full((4, 8), 1 / 8), torch.eye(8)[:4]), 1)
    writes = torch.stack((torch.eye(8)[:4], *[torch.full((4, 8), 1 / 8)] * 2), 1)
    trace = make_trace(reads, writes)
    assert trace.select_heads(None) == trace.sharpest_heads == (1, 0)
    assert trace.select_heads(0) == (0, 0)
    assert trace.select_heads(2) == (1, 2), "there is no third read head: the sharpest"
    for number in (3, -1):
        with pytest.raises(ValueError, match=rf"no head {number}: .* 2 read heads and 3 write heads"):
            trace.select_heads(number)


@pytest.mark.parametrize("name", ["memory_rows", "num_sequences", "length", "repeats"])
def test_options_have_bounds(name):
    with pytest.raises(ConfigError, match=f"^invalid value '0' for {name}: must be at least 1$"):
        AlgorithmEvaluateOptions(**{name: 0})


def test_sizes_of_another_algorithm_are_refused(run):
    with pytest.raises(UsageError, match="copy has no size 'repeats'; its sizes are length"):
        measure(load(run), repeats=2)
    with pytest.raises(UsageError, match="copy has no size 'items'"):
        explain(load(run), items=2)


def test_logits_need_rows(run):
    with pytest.raises(ConfigError, match=r"^invalid value '0' for memory_rows"):
        load(run).compute_logits(torch.zeros(1, 5, 4), memory_rows=0)


def test_a_trace_is_saved_in_every_form(run, tmp_path):
    trace = explain(load(run), length=4, head=0, seed=2)
    assert trace.prediction.text == f"{trace.num_wrong_bits} of 12 bits wrong"
    assert trace.title.startswith("copy: the ")
    for suffix in (".txt", ".json", ".html", ".png", ".svg"):
        trace.save(tmp_path / f"trace{suffix}")
        assert (tmp_path / f"trace{suffix}").stat().st_size > 100
    plain = json.loads((tmp_path / "trace.json").read_text())
    assert (plain["read_head"], plain["write_head"], plain["num_target_bits"]) == (0, 0, 12)
    assert plain["target_steps"] == [5, 6, 7, 8]
    assert plain["rows"] == trace.used_rows().tolist()
    weights = torch.tensor(plain["write_weights"])
    torch.testing.assert_close(weights, trace.write_weights[:, 0, trace.used_rows()])
    with pytest.raises(ValueError, match="no head 1"):
        explain(load(run), head=1)


def test_the_processor_has_the_algorithm(run):
    processor = load(run).processor
    assert isinstance(processor, Processor)
    assert processor.algorithm.dims == (4, 3)
    assert processor.algorithm.sizes == {"length": (1, 2)}
