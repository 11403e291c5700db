"""Options from `key=value` texts: valid ones are parsed, others are refused in one sentence."""

import contextlib
from dataclasses import asdict, dataclass, fields
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.config import Config, load_translations
from regard.errors import ConfigError, UnknownNameError
from regard.tasks import RECIPES, TranslationConfig, make_config


@dataclass(frozen=True, kw_only=True)
class Kinds(Config):
    integer: int = 1
    number: float = 1.0
    maybe: int | None = None
    perhaps: float | None = 2.0
    words: str = "a"
    name: str | None = None
    on: bool = False
    choice: Literal["left", "right"] = "left"
    some: Literal["left", "right"] | None = None
    many: tuple[str, ...] = ()
    numbers: tuple[int, ...] = ()


def read(*words):
    return Kinds.from_overrides(words)


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("integer=3", 3),
        ("integer=-3", -3),
        ("integer=1e3", 1000),
        ("integer=2.0", 2),
        ("integer=3_000", 3000),
        ("integer=3,000", 3000),
        ("integer = 7 ", 7),
        ("number=1e-3", 0.001),
        ("number=5", 5.0),
        ("maybe=none", None),
        ("maybe=None", None),
        ("maybe=4", 4),
        ("perhaps=none", None),
        ("words=none", "none"),
        ("words=a=b", "a=b"),
        ("words=", ""),
        ("name=none", None),
        ("name=x", "x"),
        ("choice=right", "right"),
        ("some=none", None),
        ("some=left", "left"),
        ("many=a.en,b.de", ("a.en", "b.de")),
        ("many= a.en , b.de ,", ("a.en", "b.de")),
        ("many=", ()),
        ("numbers=0,1", (0, 1)),
        *((f"on={word}", True) for word in ("on", "yes", "true", "True", "1")),
        *((f"on={word}", False) for word in ("off", "no", "false", "FALSE", "0")),
    ],
)
def test_every_type(word, value):
    config = getattr(read(word), word.partition("=")[0].strip())
    assert config == value
    assert type(config) is type(value)


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("integer=x", "invalid value 'x' for integer: expected an integer"),
        ("integer=1.5", "invalid value '1.5' for integer: expected an integer"),
        ("integer=", "invalid value '' for integer: expected an integer"),
        ("integer=none", "invalid value 'none' for integer: expected an integer"),
        ("integer=nan", "invalid value 'nan' for integer: expected an integer"),
        ("maybe=x", "invalid value 'x' for maybe: expected an integer"),
        ("number=x", "invalid value 'x' for number: expected a number"),
        ("on=maybe", "invalid value 'maybe' for on: expected on or off"),
        ("choice=up", "invalid value 'up' for choice: expected one of left, right"),
        ("choice=none", "invalid value 'none' for choice: expected one of left, right"),
        ("some=up", "invalid value 'up' for some: expected one of left, right or none"),
        ("numbers=0,x", "invalid value 'x' for numbers: expected an integer"),
        ("integer", "'integer' is not an option; write key=value, such as lr=0.001"),
        ("perhap=3", "no option 'perhap'; did you mean perhaps?"),
    ],
)
def test_refusals(word, sentence):
    with pytest.raises(ConfigError) as caught:
        read(word)
    assert str(caught.value) == sentence


def test_an_unknown_option_lists_all():
    with pytest.raises(ConfigError, match="choose from integer, number, maybe"):
        read("zzzzzzzz=3")


def test_the_last_value_counts_and_dashes_are_underscores():
    assert read("integer=1", "integer=2").integer == 2
    assert make_config("reverse", ["batch-tokens=99"]).batch_tokens == 99


@pytest.mark.parametrize("value", ["inf", "-inf", "1e999", "9" * 5000])
def test_infinity_is_not_an_integer(value):
    with pytest.raises(ConfigError):
        read(f"integer={value}")


@pytest.mark.parametrize("value", ["1,5", ",3", "1,,2", "10,00"])
def test_commas_are_allowed_between_thousands_only(value):
    with pytest.raises(ConfigError):
        read(f"integer={value}")


TYPED = st.one_of(
    st.text(max_size=12),
    st.floats().map(str),
    st.integers().map(str),
    st.sampled_from(["none", "on", "off", "1e3", "1,000", "a,b", "nan", "", " "]),
)


@given(st.sampled_from([field.name for field in fields(TranslationConfig)]), TYPED)
def test_random_values_raise_config_errors_only(name, value):
    try:
        make_config("translation", [f"{name}={value}"])
    except ConfigError as error:
        sentence = str(error)
        assert sentence
        assert "\n" not in sentence.replace(value.strip(), "")


@given(st.lists(st.text(max_size=10), max_size=3))
def test_random_overrides_raise_config_errors_only(words):
    with contextlib.suppress(ConfigError):
        make_config("reverse", words)


def test_every_recipe_has_a_chinese_summary():
    names = {key.removeprefix("Recipe.") for key in load_translations("zh") if key.startswith("Recipe.")}
    assert names == set(RECIPES)
    assert all(recipe.summary_zh.endswith("。") for recipe in RECIPES.values())


def test_every_group_of_options_has_a_chinese_heading():
    groups = {key.removeprefix("Group.") for key in load_translations("zh") if key.startswith("Group.")}
    assert groups == {item.group for recipe in RECIPES.values() for item in recipe.config_class.options()}


@pytest.mark.parametrize("name", list(RECIPES))
def test_configs_survive_json(name):
    import json

    kind = RECIPES[name].config_class
    files = ["train_files=a.en,a.de"] if hasattr(kind, "train") else []
    config = make_config(name, [*files, "max_grad_norm=none"])
    assert kind.from_dict(json.loads(json.dumps(asdict(config)))) == config


def test_unknown_options_of_a_record_are_refused():
    with pytest.raises(ConfigError, match="has no option a, b"):
        TranslationConfig.from_dict({"steps": 3, "b": 1, "a": 2})


@pytest.mark.parametrize(
    "words",
    [
        ["hidden_dim=0"], ["num_layers=0"], ["beam_size=0"], ["dropout=1"], ["dropout=nan"], ["label_smoothing=-0.1"],
        ["lr=0"], ["lr=nan"],
        ["steps=0"], ["bpe_dropout=0.1", "tokenizer=char"], ["embed_dim=30", "model=transformer", "num_heads=4"],
        ["tie_embeddings=all", "model=transformer", "shared_vocab=off"],
        ["tie_embeddings=all", "shared_vocab=on", "tokenizer=bpe"],
        ["shared_vocab=on", "tokenizer=char", "target_tokenizer=word"], ["input_feeding=on"], ["num_threads=0"],
    ],
)  # fmt: skip
def test_contradictions_are_refused(words):
    with pytest.raises(ConfigError, match=words[0].partition("=")[0]):
        make_config("reverse", words)


@pytest.mark.parametrize(
    "words", [["encoder_hidden_dim=-3"], ["encoder_hidden_dim=0"], ["embed_dim=0"], ["ffn_dim=-1"]]
)
def test_optional_sizes_are_checked(words):
    with pytest.raises(ConfigError):
        make_config("reverse", words)


@pytest.mark.parametrize(
    ("words", "sizes"),
    [
        ([], (256, 1, None)),
        (["model=transformer"], (512, 6, 2048)),
        (["model=transformer", "embed_dim=none", "num_layers=none", "ffn_dim=none"], (512, 6, 2048)),
        (["model=transformer", "embed_dim=64", "num_layers=2"], (64, 2, 256)),
        (["model=transformer", "ffn_dim=100"], (512, 6, 100)),
    ],
)
def test_default_sizes_depend_on_the_model(words, sizes):
    config = make_config("translation", words)
    assert (config.embed_dim, config.num_layers, config.ffn_dim) == sizes


def test_recipes_override_default_sizes():
    sizes = {
        name: (make_config(name).hidden_dim, make_config(name).num_layers) for name in ("multi30k", "dates", "reverse")
    }
    assert sizes == {"multi30k": (128, 4), "dates": (128, 1), "reverse": (64, 1)}
    assert make_config("multi30k").ffn_dim == 256


def test_sizes_in_a_record_are_not_changed():
    record = {**asdict(make_config("translation")), "model": "transformer"}
    config = TranslationConfig.from_dict(record)
    assert (config.embed_dim, config.num_layers, config.ffn_dim) == (256, 1, 1024)


@pytest.mark.parametrize(
    "words", [["length_penalty=nan"], ["entropy_bonus=nan"], ["reward_discount=-1"], ["reward_discount=inf"]]
)
def test_bounds_are_checked(words):
    with pytest.raises(ConfigError):
        make_config("reverse", words)


@pytest.mark.parametrize("words", [["monitor=blue"], ["bleu_tokenizer=foo"]])
def test_choices_are_checked(words):
    with pytest.raises(ConfigError):
        make_config("reverse", words)


@pytest.mark.bare
@pytest.mark.parametrize(
    "values",
    [
        {"stepps": 3},
        {"hidden_dim": "16"},
        {"model": "transformr"},
        {"joint": "off"},
        {"hidden_dim": 16.5},
        {"train": "a.tsv"},
    ],
)
def test_python_values_are_checked(values):
    with pytest.raises(ConfigError):
        make_config("reverse", **values)


def test_defaults_of_recipes_are_valid():
    for name in RECIPES:
        assert make_config(name).steps >= 1
    with pytest.raises(UnknownNameError, match="no recipe 'revers'; did you mean reverse"):
        make_config("revers")
