"""Recipes of plain text: trained, resumed, loaded, judged; writing on, filling in, and beginning with it."""

import math

import pytest
import torch

from regard.errors import ConfigError, DataError
from regard.tasks import FillMask, TextGenerator, get_recipe, load, resume, train
from regard.tasks.language_modeling.task import FillMaskTask
from regard.training import RunFolder, load_weights
from tests.recipes.reviews import reviews, tsv
from tests.recipes.texts import NUMBERS, text
from tests.recipes.tiny import quiet

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
    (folder / "a.txt").write_text(text(300), encoding="utf-8")
    (folder / "b.txt").write_text(text(40, 1), encoding="utf-8")
    return {"train_files": (str(folder / "a.txt"),), "test_files": (str(folder / "b.txt"),)}


@pytest.fixture(scope="module")
def written(files, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "language"
    words = [*SMALL, "num_layers=1", "vocab_size=60", "lr=0.01", "dropout=0", "steps=80", "validate_every=40"]
    train("language", folder, words, log=quiet, **files)
    return folder


@pytest.fixture(scope="module")
def filled(files, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "masked"
    words = [*SMALL, "layer_types=attention", "lr=0.01", "dropout=0", "steps=250", "validate_every=125"]
    train("masked-language", folder, words, log=quiet, **files)
    return folder


def test_it_writes_on(written):
    writer = load(written)
    assert isinstance(writer, TextGenerator)
    generator = torch.Generator().manual_seed(0)
    texts = writer.generate("three four five", 20, generator=generator, top_k=1, max_tokens=3)
    assert texts[0].text.startswith("three four five")
    assert len({one.text for one in texts}) == 1
    found = writer.generate("three", 30, generator=generator, temperature=0.7)
    steps = [
        (a, b.strip("."))
        for one in found
        for a, b in zip(one.text.split(), one.text.split()[1:], strict=False)
        if not a.endswith(".")
    ]
    assert sum(NEXT.get(a) == b for a, b in steps) > 0.9 * len(steps)
    assert all(one.log_prob < 0 for one in found)
    assert writer.generate("three", method="greedy")[0] == writer.generate("three", method="greedy")[0]


def test_the_same_seed_writes_the_same(written):
    writer = load(written)
    one, two, other = (
        writer.generate("", 3, generator=torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)
    )
    assert one == two
    assert one != other


def test_beginnings_that_are_too_long_or_strange(written):
    writer = load(written)
    with pytest.raises(ValueError, match=r"the beginning has .* but this model takes 31"):
        writer.generate("one two three " * 20)
    assert writer.generate("Ω two", max_tokens=1, method="greedy")[0].text.startswith("Ω two")
    room = writer.generate("one two", method="greedy", max_tokens=1000)[0]
    assert room.num_tokens <= 32


def test_what_a_text_costs_adds_up(written):
    writer = load(written)
    found = get_recipe("language").task.judge(get_recipe("language"), writer)
    assert found["part"] == "test"
    assert found["perplexity"] == pytest.approx(math.exp(found["loss"]))
    bits = found["loss"] * found["tokens"] / math.log(2) / found["characters"]
    assert found["bits_per_character"] == pytest.approx(bits)
    assert found["bits_per_character"] < 0.7
    one = "four five six."
    ids = [2, *writer.tokenizer.encode(one), 3]
    with torch.no_grad():
        scores = writer.model(torch.tensor([ids[:-1]]))[0].log_softmax(-1)
    total = -sum(float(scores[place, token]) for place, token in enumerate(ids[1:]))
    assert writer.evaluate([one])["loss"] == pytest.approx(total / (len(ids) - 1), rel=1e-4)


def test_it_fills_in(filled):
    guesser = load(filled)
    assert isinstance(guesser, FillMask)
    assert guesser.fill("three ___ five six.") == "three four five six."
    (gap,) = guesser.predict("three ___ five six.", num_best=4)
    assert len(gap) == 4
    assert gap[0].word == "four"
    assert gap[0].probability > 0.5
    assert guesser.to_json("three ___ five.")["gaps"][0][0]["word"] == "four"
    assert guesser.fill("___ four ___ six") == "three four five six"
    with pytest.raises(ValueError, match="there is no gap"):
        guesser.predict("three four")
    with pytest.raises(ValueError, match="this model takes 31"):
        guesser.predict("one " * 40 + "___")


def test_what_is_hidden_is_judged_the_same_each_time(filled):
    guesser = load(filled)
    one, two = (
        FillMaskTask().judged(guesser, ["one two three four five six seven.", "two three."]) for _ in range(2)
    )
    assert one == two
    found = get_recipe("masked-language").task.judge(get_recipe("masked-language"), guesser, "valid")
    assert found["accuracy"] > 60
    assert found["part"] == "valid"


@pytest.mark.parametrize(
    ("name", "more"), [("language", "num_layers=1"), ("masked-language", "layer_types=cnn,gru")]
)
def test_an_interrupted_run_goes_on_bit_for_bit(files, tmp_path, name, more):
    words = [*TINY, more, "dropout=0.3"]
    train(name, tmp_path / "whole", words, log=quiet, **files)
    train(name, tmp_path / "parts", [*words, "steps=2"], log=quiet, **files)
    resume(tmp_path / "parts", log=quiet, steps=4)
    whole, again = (load_weights(RunFolder.open(tmp_path / one).find_weights()) for one in ("whole", "parts"))
    assert all(torch.equal(whole[key], again[key]) for key in whole)


def test_begin_with_another_run(written, filled, files, tmp_path):
    words = [*TINY, "steps=1"]
    train("language", tmp_path / "a", [*words, "num_layers=1"], init_from=written, log=quiet, **files)
    assert load(tmp_path / "a").tokenizer == load(written).tokenizer
    train(
        "masked-language",
        tmp_path / "b",
        [*words, "layer_types=attention"],
        init_from=filled,
        log=quiet,
        **files,
    )
    assert load(tmp_path / "b").tokenizer == load(filled).tokenizer
    with pytest.raises(ConfigError, match="needs another kind of model"):
        train("language", tmp_path / "c", words, init_from=filled, log=quiet, **files)


def test_documents_begin_with_a_run_that_filled_in(filled, tmp_path):
    pairs = tsv(tmp_path / "x.tsv", [("odd", "one three five."), ("even", "two four. Six.")] * 6)
    words = ["steps=1", "lr=1e-9", "warmup_steps=0", "batch_tokens=300", "num_threads=1"]
    given = {"train_files": (pairs,), "valid_files": (pairs,)}
    train("documents", tmp_path / "run", words, init_from=filled, log=quiet, **given)
    classifier, guesser = load(tmp_path / "run"), load(filled)
    assert classifier.labels == ("even", "odd")
    assert classifier.tokenizer == guesser.tokenizer
    assert classifier.config.layer_types == ("attention",)
    ours, theirs = (made.encoder.state_dict() for made in (classifier.model, guesser.model))
    for name, tensor in ours.items():
        torch.testing.assert_close(tensor, theirs[name][: len(tensor)], atol=1e-6, rtol=0)
    assert classifier.explain("Six. One!").sentence_weights.shape == (2,)
    train(
        "mixed",
        tmp_path / "more",
        words,
        init_from=tmp_path / "run",
        log=quiet,
        layer_types=("attention",),
        embed_dim=32,
        num_heads=2,
        ffn_dim=64,
        **given,
    )
    assert load(tmp_path / "more").labels == ("even", "odd")
    for chosen, sentence in (
        ("embed_dim=64", "embed_dim is that of .*: 32, not 64"),
        ("model=hierarchical", "model is that"),
    ):
        with pytest.raises(ConfigError, match=sentence):
            train("documents", tmp_path / "no", [*words, chosen], init_from=filled, log=quiet, **given)


def test_layers_of_several_kinds_read_documents(tmp_path):
    given = {
        f"{name}_files": (tsv(tmp_path / f"{name}.tsv", reviews(count, seed)),)
        for name, count, seed in (("train", 120, 0), ("valid", 40, 1), ("test", 40, 2))
    }
    words = [
        "embed_dim=16",
        "num_heads=2",
        "vocab_size=100",
        "batch_tokens=600",
        "num_threads=1",
        "dropout=0",
        "warmup_steps=5",
    ]
    words += ["lr=0.01", "steps=60", "validate_every=30", "max_span=8", "layer_types=cnn,attention,lstm"]
    train("mixed", tmp_path / "run", words, log=quiet, **given)
    classifier = load(tmp_path / "run")
    assert get_recipe("mixed").task.judge(get_recipe("mixed"), classifier)["accuracy"] > 90
    reading = classifier.explain("We saw the plot. The music awful then. A road.")
    assert reading.prediction.label == "neg"
    assert max(reading.word_shares()[1]) == max(share for row in reading.word_shares() for share in row)
    kinds = [type(layer).__name__ for layer in classifier.model.encoder.layers]
    assert kinds == ["ConvLayer", "SelfAttentionLayer", "RNNLayer"]


@pytest.mark.parametrize(
    ("name", "words", "sentence"),
    [
        (
            "language",
            ["monitor=accuracy"],
            "for monitor: expected one of loss, perplexity, bits_per_character",
        ),
        ("language", ["num_layers=0"], "invalid value '0' for num_layers: must be at least 1"),
        ("language", ["passage_length=9000"], "for batch_tokens: must be above passage_length=9000"),
        ("language", ["embed_dim=30", "num_heads=4"], "a multiple of num_heads=4"),
        ("masked-language", ["mask_prob=1"], "invalid value '1.0' for mask_prob: must be below 1"),
        ("masked-language", ["layer_types=attention,rnn"], "no layer 'rnn'"),
        ("masked-language", ["layer_types=none"], "no layer 'none'"),
        ("masked-language", ["layer_types="], "name one or more of"),
    ],
)
def test_settings_that_cannot_be(name, words, sentence, files, tmp_path):
    with pytest.raises(ConfigError, match=sentence):
        train(name, tmp_path / "run", words, log=quiet, **files)
    assert not (tmp_path / "run").exists()


def test_missing_and_short_text(tmp_path):
    with pytest.raises(ConfigError, match=r"--train a\.txt"):
        train("language", tmp_path / "run", log=quiet)
    (tmp_path / "one.txt").write_text("one two\n")
    with pytest.raises(DataError, match="too few to hold one of 20 out"):
        train("language", tmp_path / "run", TINY, log=quiet, train_files=(str(tmp_path / "one.txt"),))


def test_words_that_nobody_knows_are_no_perfect_score(filled):
    guesser = load(filled)
    with pytest.raises(DataError, match="no word in the text that could be hidden"):
        FillMaskTask().judged(guesser, ["qqqq wwww zzzz"])
