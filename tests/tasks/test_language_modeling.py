"""Text generation and fill-mask: training, resuming, loading, evaluation, and weights for text classification."""

import json
import math

import pytest
import torch

from regard.errors import ConfigError, DataError, InputError, InputTooLongError
from regard.tasks import FillMask, TextGenerator, load, resume, train
from regard.tasks.language_modeling.config import FillOptions, GenerateOptions
from regard.tasks.loading import evaluate
from regard.training import RunFolder, load_weights
from tests.tasks.fixtures_reviews import reviews, write_tsv
from tests.tasks.fixtures_texts import NUMBERS, make_text
from tests.tasks.tiny_runs import quiet

SMALL = [
    "embed_dim=32",
    "num_heads=2",
    "ffn_dim=64",
    "passage_length=32",
    "batch_tokens=600",
    "num_threads=1",
    "warmup_steps=10",
]
TINY = [*SMALL, "steps=4", "validate_every=2", "save_every=2"]
NEXT = dict(zip(NUMBERS, [*NUMBERS[1:], NUMBERS[0]], strict=True))


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    (folder / "a.txt").write_text(make_text(300), encoding="utf-8")
    (folder / "b.txt").write_text(make_text(40, 1), encoding="utf-8")
    return {"train_files": (str(folder / "a.txt"),), "test_files": (str(folder / "b.txt"),)}


@pytest.fixture(scope="module")
def language(files, tmp_path_factory):
    """A run that generates text."""
    folder = tmp_path_factory.mktemp("runs") / "language"
    overrides = ["num_layers=1", "vocab_size=60", "lr=0.01", "dropout=0", "steps=80", "validate_every=40"]
    train("language", folder, [*SMALL, *overrides], log=quiet, **files)
    return folder


@pytest.fixture(scope="module")
def masked(files, tmp_path_factory):
    """A run that fills gaps."""
    folder = tmp_path_factory.mktemp("runs") / "masked"
    overrides = ["layer_types=attention", "lr=0.01", "dropout=0", "steps=250", "validate_every=125"]
    train("masked-language", folder, [*SMALL, *overrides], log=quiet, **files)
    return folder


def test_generation_continues_a_prompt(language):
    generator = load(language)
    assert isinstance(generator, TextGenerator)
    random = torch.Generator().manual_seed(0)
    texts = generator.generate("three four five", 20, generator=random, top_k=1, max_tokens=3)
    assert texts[0].text.startswith("three four five")
    assert len({one.text for one in texts}) == 1
    samples = generator.generate("three", 30, generator=random, temperature=0.7)
    steps = [
        (a, b.strip("."))
        for one in samples
        for a, b in zip(one.text.split(), one.text.split()[1:], strict=False)
        if not a.endswith(".")
    ]
    assert sum(NEXT.get(a) == b for a, b in steps) > 0.9 * len(steps)
    assert all(one.score < 0 for one in samples)
    options = GenerateOptions(method="greedy")
    assert generator.predict(["three"], options) == generator.predict(["three"], options)
    assert generator.predict(["three"], options)[0] == generator.generate("three", method="greedy")[0]


def test_the_same_seed_generates_the_same_text(language):
    generator = load(language)
    one, two, other = (generator.predict([""], GenerateOptions(num_samples=3, seed=seed))[0] for seed in (1, 1, 2))
    assert one == two
    assert one != other
    assert len(one.samples) == len(one.to_json()["samples"]) == 3
    assert one.samples[0].text == one.text
    random = torch.Generator().manual_seed(1)
    assert generator.generate("", 3, generator=random) == list(one.samples)


def test_long_and_unusual_prompts(language):
    generator = load(language)
    for method in (generator.predict, generator.check):
        with pytest.raises(InputTooLongError, match=r"the prompt has .* but this model takes 31") as caught:
            method(["one", "one two three " * 20])
        assert caught.value.row == 1
    options = GenerateOptions(method="greedy", max_tokens=1)
    assert generator.predict(["Ω two"], options)[0].text.startswith("Ω two")
    longest = generator.generate("one two", method="greedy", max_tokens=1000)[0]
    assert longest.num_tokens <= 32


def test_loss_is_the_sum_of_token_losses(language):
    generator = load(language)
    ((split, report),) = evaluate(language).items()
    assert split == "test"
    metrics, (data,) = report.metrics, report.tables["data"]
    assert metrics["perplexity"] == pytest.approx(math.exp(metrics["loss"]))
    bits = metrics["loss"] * data["tokens"] / math.log(2) / data["characters"]
    assert metrics["bits_per_character"] == pytest.approx(bits)
    assert metrics["bits_per_character"] < 0.7
    text = "four five six."
    ids = [2, *generator.tokenizer.encode(text), 3]
    with torch.no_grad():
        log_probs = generator.model(torch.tensor([ids[:-1]]))[0].log_softmax(-1)
    total = -sum(float(log_probs[index, token]) for index, token in enumerate(ids[1:]))
    report = generator.evaluate([text])
    assert report.metrics["loss"] == pytest.approx(total / (len(ids) - 1), rel=1e-4)


def test_fill_mask_fills_gaps(masked):
    predictor = load(masked)
    assert isinstance(predictor, FillMask)
    (filled,) = predictor.predict(["three ___ five six."], FillOptions(num_best=4))
    assert filled.text == "three four five six."
    (gap,) = filled.gaps
    assert len(gap) == 4
    assert gap[0].word == "four"
    assert gap[0].probability == filled.score > 0.5
    assert filled.to_json()["gaps"][0][0]["word"] == "four"
    filled, other = predictor.predict(["___ four ___ six", "three ___ five."])
    assert filled.text == "three four five six"
    assert filled.score == pytest.approx(filled.gaps[0][0].probability * filled.gaps[1][0].probability)
    assert other.text == "three four five."
    for method in (predictor.predict, predictor.check):
        with pytest.raises(InputError, match="there is no gap"):
            method(["three four"])
        with pytest.raises(InputTooLongError, match="this model takes 31"):
            method(["one " * 40 + "___"])


def test_masks_of_an_evaluation_are_always_the_same(masked):
    predictor = load(masked)
    one, two = (predictor.evaluate(["one two three four five six seven.", "two three."]) for _ in range(2))
    assert one == two
    ((split, report),) = evaluate(masked, "valid").items()
    assert split == "valid"
    assert report.metrics["accuracy"] > 60
    best = [json.loads(line) for line in (masked / "metrics.jsonl").read_text().splitlines()]
    assert report.metrics in [line["valid"] for line in best if "valid" in line]


@pytest.mark.parametrize(("name", "more"), [("language", "num_layers=1"), ("masked-language", "layer_types=cnn,gru")])
def test_a_resumed_run_is_equal_bit_for_bit(files, tmp_path, name, more):
    overrides = [*TINY, more, "dropout=0.3"]
    train(name, tmp_path / "whole", overrides, log=quiet, **files)
    train(name, tmp_path / "parts", [*overrides, "steps=2"], log=quiet, **files)
    resume(tmp_path / "parts", log=quiet, steps=4)
    expected, resumed = (load_weights(RunFolder.open(tmp_path / part).find_weights()) for part in ("whole", "parts"))
    assert all(torch.equal(expected[key], resumed[key]) for key in expected)


def test_init_from_another_run(language, masked, files, tmp_path):
    overrides = [*TINY, "steps=1"]
    train("language", tmp_path / "a", [*overrides, "num_layers=1"], init_from=language, log=quiet, **files)
    assert load(tmp_path / "a").tokenizer == load(language).tokenizer
    more = [*overrides, "layer_types=attention"]
    train("masked-language", tmp_path / "b", more, init_from=masked, log=quiet, **files)
    assert load(tmp_path / "b").tokenizer == load(masked).tokenizer
    with pytest.raises(ConfigError, match="needs another kind of model"):
        train("language", tmp_path / "c", overrides, init_from=masked, log=quiet, **files)


def test_text_classification_begins_with_a_masked_language_model(masked, tmp_path):
    pairs = write_tsv(tmp_path / "x.tsv", [("odd", "one three five."), ("even", "two four. Six.")] * 6)
    overrides = ["steps=1", "lr=1e-9", "warmup_steps=0", "batch_tokens=300", "num_threads=1"]
    files = {"train_files": (pairs,), "valid_files": (pairs,)}
    train("documents", tmp_path / "run", overrides, init_from=masked, log=quiet, **files)
    classifier, predictor = load(tmp_path / "run"), load(masked)
    assert classifier.labels == ("even", "odd")
    assert classifier.tokenizer == predictor.tokenizer
    assert classifier.config.layer_types == ("attention",)
    after, before = (one.model.encoder.state_dict() for one in (classifier, predictor))
    for name, tensor in after.items():
        torch.testing.assert_close(tensor, before[name][: len(tensor)], atol=1e-6, rtol=0)
    assert classifier.explain("Six. One!").sentence_weights.shape == (2,)
    train(
        "mixed",
        tmp_path / "more",
        overrides,
        init_from=tmp_path / "run",
        log=quiet,
        layer_types=("attention",),
        embed_dim=32,
        num_heads=2,
        ffn_dim=64,
        **files,
    )
    assert load(tmp_path / "more").labels == ("even", "odd")
    for override, message in (
        ("embed_dim=64", "embed_dim is that of .*: 32, not 64"),
        ("model=hierarchical", "model is that"),
    ):
        with pytest.raises(ConfigError, match=message):
            train("documents", tmp_path / "no", [*overrides, override], init_from=masked, log=quiet, **files)


def test_a_stack_of_several_layers_classifies_documents(tmp_path):
    files = {
        f"{name}_files": (write_tsv(tmp_path / f"{name}.tsv", reviews(count, seed)),)
        for name, count, seed in (("train", 120, 0), ("valid", 40, 1), ("test", 40, 2))
    }
    overrides = [
        "embed_dim=16",
        "num_heads=2",
        "vocab_size=100",
        "batch_tokens=600",
        "num_threads=1",
        "dropout=0",
        "warmup_steps=5",
        "lr=0.01",
        "steps=60",
        "validate_every=30",
        "max_span=8",
        "layer_types=cnn,attention,lstm",
    ]
    train("mixed", tmp_path / "run", overrides, log=quiet, **files)
    classifier = load(tmp_path / "run")
    assert evaluate(tmp_path / "run")["test"].metrics["accuracy"] > 90
    explanation = classifier.explain("We saw the plot. The music awful then. A road.")
    assert explanation.prediction.text == "neg"
    pairs = zip(explanation.sentence_weights, explanation.word_weights, strict=True)
    shares = [float((weight * words).max()) for weight, words in pairs]
    assert shares.index(max(shares)) == 1
    types = [type(layer).__name__ for layer in classifier.model.encoder.layers]
    assert types == ["ConvLayer", "SelfAttentionLayer", "RNNLayer"]


@pytest.mark.parametrize(
    ("name", "overrides", "message"),
    [
        ("language", ["monitor=accuracy"], "for monitor: expected one of loss, perplexity, bits_per_character"),
        ("language", ["num_layers=0"], "invalid value '0' for num_layers: must be at least 1"),
        ("language", ["passage_length=9000"], "for batch_tokens: must be above passage_length=9000"),
        ("language", ["embed_dim=30", "num_heads=4"], "a multiple of num_heads=4"),
        ("masked-language", ["mask_prob=1"], "invalid value '1.0' for mask_prob: must be below 1"),
        ("masked-language", ["layer_types=attention,rnn"], "no layer 'rnn'"),
        ("masked-language", ["layer_types=none"], "no layer 'none'"),
        ("masked-language", ["layer_types="], "name one or more of"),
    ],
)
def test_invalid_options(name, overrides, message, files, tmp_path):
    with pytest.raises(ConfigError, match=message):
        train(name, tmp_path / "run", overrides, log=quiet, **files)
    assert not (tmp_path / "run").exists()


def test_missing_and_short_files(tmp_path):
    with pytest.raises(ConfigError, match=r"--train a\.txt"):
        train("language", tmp_path / "run", log=quiet)
    (tmp_path / "one.txt").write_text("one two\n")
    with pytest.raises(DataError, match="too few to hold one of 20 out"):
        train("language", tmp_path / "run", TINY, log=quiet, train_files=(str(tmp_path / "one.txt"),))


def test_a_text_of_unknown_words_cannot_be_evaluated(masked):
    with pytest.raises(DataError, match="no word in the text that could be masked"):
        load(masked).evaluate(["qqqq wwww zzzz"])
