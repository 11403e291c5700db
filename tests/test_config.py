"""Configurations: parsing, bounds, choices, flags; one sentence for every mistake."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from regard._synonyms import TABLE
from regard.config import Config, option, split_override
from regard.errors import ConfigError
from regard.tasks import RECIPES, make_config


@dataclass(frozen=True, kw_only=True)
class Base(Config):
    steps: int = option(100, "number of steps", ge=1, resumable=True)
    schedule: Literal["constant", "cosine"] = option("cosine", "schedule of the learning rate")
    device: str = option("cpu", "where to compute", choices=("cpu", "cuda"), neutral=True)
    rate: float | None = option(0.1, "learning rate", gt=0, lt=1)


@dataclass(frozen=True, kw_only=True)
class Sizes(Base):
    train_files: tuple[str, ...] = option((), "files", path=True)
    data_dir: str | None = option(None, "folder", path=True)
    model: Literal["rnn", "transformer"] = option("rnn", "which network", inherit=True)
    dim: int | None = option(None, "size; 8 or 16 if none", ge=1)
    num_heads: int = option(2, "number of num_heads", ge=1, when={"model": "transformer"})
    limit: float = option(1.0, "a limit", ge=0, infinite=True)

    def validate(self):
        if self.model == "transformer" and self.dim is not None and self.dim % self.num_heads:
            raise self.option("dim").error(self.dim, f"must be a multiple of num_heads={self.num_heads}")

    def resolve(self):
        return self if self.dim is not None else self.replace(dim=8 if self.model == "rnn" else 16)


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        (
            "schedule=cosin",
            "invalid value 'cosin' for schedule: expected one of constant, cosine; did you mean cosine?",
        ),
        ("schedule=x", "invalid value 'x' for schedule: expected one of constant, cosine"),
        ("device=kuda", "invalid value 'kuda' for device: expected one of cpu, cuda; did you mean cuda?"),
        ("steps=0", "invalid value '0' for steps: must be at least 1"),
        ("steps=many", "invalid value 'many' for steps: expected an integer"),
        ("steps=1.5", "invalid value '1.5' for steps: expected an integer"),
        ("rate=1", "invalid value '1.0' for rate: must be below 1"),
        ("rate=0", "invalid value '0.0' for rate: must be above 0"),
        ("rate=nan", "invalid value 'nan' for rate: must be a finite number"),
        ("rate=inf", "invalid value 'inf' for rate: must be a finite number"),
        ("stepps=3", "no option 'stepps'; did you mean steps?"),
        ("xyz=3", "no option 'xyz'; choose from steps, schedule, device, rate"),
        ("max_steps=3", "no option 'max_steps'; did you mean steps?"),
        ("steps", "'steps' is not an option; write key=value, such as lr=0.001"),
    ],
)
def test_a_mistake_is_one_sentence(override, sentence):
    with pytest.raises(ConfigError) as caught:
        Base.from_overrides([override])
    assert str(caught.value) == sentence
    assert caught.value.code == "invalid_config"


def test_overrides_win_over_values_and_values_over_defaults():
    config = Sizes.from_overrides(["steps=3e3", "train_files=a.en, b.de"], steps=5, num_heads=4)
    assert (config.steps, config.num_heads, config.train_files) == (3000, 4, ("a.en", "b.de"))
    assert Sizes.from_overrides(["steps=3,000"]).steps == Sizes.from_overrides(["steps=3_000"]).steps == 3000
    assert split_override(" batch-size = 3 ") == ("batch_size", "3")


@pytest.mark.parametrize(
    "values", [{"steps": "3"}, {"steps": True}, {"steps": None}, {"train_files": ("a", 1)}, {"dim": 2.0}]
)
def test_a_value_of_another_type_is_refused(values):
    with pytest.raises(ConfigError, match="expected"):
        Sizes(**values)


def test_direct_construction_checks_too():
    with pytest.raises(ConfigError, match="must be at least 1"):
        Sizes(num_heads=0)
    with pytest.raises(ConfigError, match="must be a multiple of num_heads=3"):
        Sizes(model="transformer", dim=8, num_heads=3)
    with pytest.raises(ConfigError, match="must be at least 1"):
        Sizes().replace(steps=0)
    assert Sizes(limit=math.inf).limit == math.inf


def test_sizes_are_resolved_and_kept():
    config = Sizes.from_overrides(["model=transformer"])
    assert config.dim == 16
    assert Sizes.from_dict(config.to_dict()) == config
    assert Sizes.from_dict({"train_files": ["a", "b"]}).train_files == ("a", "b")
    with pytest.raises(ConfigError, match="has no option depth"):
        Sizes.from_dict({"depth": 3})


def test_options_know_their_group_choices_and_flags():
    options = {item.name: item for item in Sizes.options()}
    assert list(options)[:4] == ["steps", "schedule", "device", "rate"]
    assert options["steps"].group == "Base"
    assert options["num_heads"].group == "Sizes"
    assert options["schedule"].allowed == ("constant", "cosine")
    assert options["device"].allowed == ("cpu", "cuda")
    assert options["steps"].allowed == ()
    assert [item.name for item in Sizes.options() if item.resumable] == ["steps"]
    assert [item.name for item in Sizes.options() if item.neutral] == ["device"]
    assert all(item.help for item in Sizes.options())


def test_unused_options_are_named_with_their_condition():
    config = Sizes.from_overrides(["num_heads=4"])
    assert config.unused(["num_heads", "steps"]) == {"num_heads": {"model": "transformer"}}
    assert Sizes.from_overrides(["num_heads=4", "model=transformer"]).unused(["num_heads"]) == {}


def test_inheriting_paths_and_differences(tmp_path, monkeypatch):
    config = Sizes.from_overrides(["steps=3"])
    other = Sizes.from_overrides(["model=transformer", "steps=9"])
    assert config.inherit_from(other).model == "transformer"
    assert config.inherit_from(other.to_dict()).steps == 3
    assert config.differences(other) == {"steps": (3, 9), "model": ("rnn", "transformer"), "dim": (8, 16)}
    monkeypatch.chdir(tmp_path)
    resolved = Sizes.from_overrides(["train_files=a,b", "data_dir=c"]).resolve_paths()
    assert resolved.train_files == (str(Path("a").resolve()), str(Path("b").resolve()))
    assert resolved.data_dir == str(Path("c").resolve())
    assert Sizes.from_overrides(["data_dir=download"]).resolve_paths().data_dir == "download"


@pytest.mark.parametrize("name", list(RECIPES))
def test_conditions_name_options_and_their_values(name):
    cls = RECIPES[name].config_class
    for item in cls.options():
        for other, value in item.when.items():
            cls.option(other).check(value)


@dataclass(frozen=True, kw_only=True)
class AutoConfig(Config):
    size: int | None = option(None, "size; auto: twice the width", auto=True)
    held_out: tuple[str, ...] = option((), "files; auto: every tenth example", auto=True)
    limit: int | None = option(None, "limit")


def test_a_value_that_follows_from_others_is_written_auto():
    config = AutoConfig.from_overrides(["size=auto", "held_out=auto", "limit=none"])
    assert config == AutoConfig()
    assert [item.format(getattr(config, item.name)) for item in AutoConfig.options()] == ["auto", "auto", "none"]
    assert AutoConfig.from_overrides(["size=none"]).size is None
    with pytest.raises(ConfigError, match="'auto' for limit"):
        AutoConfig.from_overrides(["limit=auto"])


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("learning_rate", "lr"),
        ("warmup", "warmup_steps"),
        ("num_warmup_steps", "warmup_steps"),
        ("num_epochs", "epochs"),
        ("num_train_epochs", "epochs"),
        ("max_epochs", "epochs"),
        ("max_steps", "steps"),
        ("grad_accum", "grad_accumulation"),
        ("gradient_accumulation_steps", "grad_accumulation"),
        ("accumulate_grad_batches", "grad_accumulation"),
        ("clip", "max_grad_norm"),
        ("gradient_clip_val", "max_grad_norm"),
        ("max_norm", "max_grad_norm"),
        ("bs", "batch_size"),
        ("per_device_train_batch_size", "batch_size"),
        ("max_tokens", "batch_tokens"),
        ("workers", "num_threads"),
        ("eval_steps", "validate_every"),
        ("fp16", "precision"),
        ("Learning_Rate", "lr"),
        ("d_model", "embed_dim"),
        ("num_beams", "beam_size"),
    ],
)
def test_the_names_of_other_libraries_are_answered_by_ours(theirs, ours):
    config = RECIPES["translation"].config_class
    for refused in (lambda: config.from_overrides([f"{theirs}=1"]), lambda: config(**{theirs: 1})):
        with pytest.raises(ConfigError) as caught:
            refused()
        assert str(caught.value) == f"no option {theirs!r}; did you mean {ours}?"
        assert caught.value.details["suggestions"] == [ours]


def test_every_option_of_the_table_exists_and_no_name_in_it_is_an_option_of_the_same_config():
    configs = {recipe.config_class for recipe in RECIPES.values()}
    known = {item.name for config in configs for item in config.options()}
    assert TABLE.keys() <= known
    for config in configs:
        names = {item.name for item in config.options()}
        assert all(name not in theirs.split() for name, theirs in TABLE.items() if name in names)


def test_a_long_list_of_options_is_never_printed():
    with pytest.raises(ConfigError, match="no option 'qqq'; `regard train RECIPE --show` lists them all") as caught:
        RECIPES["translation"].config_class.from_overrides(["qqq=1"])
    assert len(str(caught.value)) < 100


def test_one_option_in_place_of_another():
    config = make_config("reverse", ["epochs=3", "batch_size=16"])
    assert (config.epochs, config.batch_size) == (3, 16)
    assert (config.steps, config.batch_tokens) == (10_000, 4096), "those of the recipe do not count"
    assert make_config("reverse", ["epochs=none"]).steps == 300
    for overrides in (["epochs=3", "steps=5"], ["batch_size=3", "batch_tokens=100"]):
        with pytest.raises(ConfigError, match=r"it is in place of .*; leave one of them out"):
            make_config("reverse", overrides)
    assert config.replace(steps=7).epochs is None
    assert make_config("reverse").replace(epochs=2).steps == 10_000
