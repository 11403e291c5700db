"""Which parts of the catalogue the playground offers, and how they are built from a few numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from regard import attention
from regard.catalogue import get_mechanism
from regard.errors import RequestError

HIDDEN = 8  # of the small networks that judge
SIZES = {"query_dim": 2, "key_dim": 2}  # a plane
Values = Mapping[str, float]


@dataclass(frozen=True)
class Setting:
    """A number that a part takes: its range, and where it begins."""

    name: str
    low: float
    high: float
    start: float
    step: float = 0.05

    def checked(self, value: float) -> float:
        if not self.low <= value <= self.high:
            raise RequestError(
                422, "out_of_range", f"{self.name} is from {self.low:g} to {self.high:g}, not {value:g}."
            )
        if self.step == 1 and value != int(value):
            raise RequestError(422, "out_of_range", f"{self.name} is a whole number, not {value:g}.")
        return int(value) if self.step == 1 else value


@dataclass(frozen=True)
class Part:
    """A mechanism by its name in the catalogue, what can be set, and the Python that makes it.

    `code` has the settings in braces, and the sizes of a query and a key, query_dim and key_dim. A `seed` is no
    argument of the part: its weights are drawn from it.
    """

    name: str
    code: str
    build: Callable[[Values], Any]
    settings: tuple[Setting, ...] = ()

    def to_json(self) -> dict[str, Any]:
        entry = get_mechanism(self.name)
        said = {"sentence": {"en": entry.summary, "zh": entry.summary_zh}, "equation": entry.equation}
        made = self.build({**{one.name: one.start for one in self.settings}, **SIZES})
        which = {"output_kind": made.output_kind} if entry.kind == "score" else {}
        if entry.kind == "normalizer":
            which = {"input_kind": getattr(made, "input_kind", "logits")}
        return {"name": self.name, **said, **which, "settings": [vars(one) for one in self.settings]}


SEED = Setting("seed", 0, 99, 0, step=1)
WIDTH = Setting("width", 0.05, 4.0, 1.0)


def _score(name: str, code: str, *settings: Setting) -> Part:
    """A score whose arguments are its settings."""

    def build(values: Values) -> Any:
        return getattr(attention, name)(**{one.name: values[one.name] for one in settings})

    return Part(name, code, build, settings)


def _learned(name: str, **sizes: int) -> Part:
    """A score with weights, drawn from a seed as nobody has trained it."""
    known = ", ".join(f"{key}={value}" for key, value in sizes.items())
    keys = "" if name == "Location" else ", key_dim={key_dim}"

    def build(values: Values) -> Any:
        wide = {} if name == "Location" else {"key_dim": int(values["key_dim"])}
        made = getattr(attention, name)(query_dim=int(values["query_dim"]), **wide, **sizes)
        return drawn(made, int(values["seed"]))

    return Part(name, f"{name}(query_dim={{query_dim}}{keys}{', ' if known else ''}{known})", build, (SEED,))


def drawn(module: torch.nn.Module, seed: int) -> torch.nn.Module:
    """The module with weights that depend on the seed only, whoever else draws numbers meanwhile."""
    chance = torch.Generator().manual_seed(seed)
    for weight in module.parameters():
        weight.requires_grad_(False).copy_(torch.randn(weight.shape, generator=chance))
    return module.double()


SCORES = (
    _score("ScaledDot", "ScaledDot()"),
    _score("Dot", "Dot()"),
    _score("Cosine", "Cosine(strength={strength})", Setting("strength", 0.0, 20.0, 5.0, 0.1)),
    _score("Gaussian", "Gaussian(width={width})", WIDTH),
    _score("Boxcar", "Boxcar(width={width})", WIDTH),
    _score("Epanechnikov", "Epanechnikov(width={width})", Setting("width", 0.05, 4.0, 1.5)),
    _score("Constant", "Constant()"),
    _learned("Bilinear"),
    _learned("Additive", hidden_dim=HIDDEN),
    _learned("Concat", hidden_dim=HIDDEN),
    _learned("Energy"),
    _learned("Location", max_keys=64),
)
TEMPERATURE = Setting("temperature", 0.05, 5.0, 0.5)
NORMALIZERS = (
    Part("softmax", "softmax", lambda _: attention.softmax),
    Part(
        "Temperature", "Temperature({temperature})", lambda v: attention.Temperature(v["temperature"]), (TEMPERATURE,)
    ),
    Part("sparsemax", "sparsemax", lambda _: attention.sparsemax),
    Part("entmax15", "entmax15", lambda _: attention.entmax15),
    Part("Entmax", "Entmax({alpha})", lambda v: attention.Entmax(v["alpha"]), (Setting("alpha", 1.0, 3.0, 1.3),)),
    Part("TopK", "TopK({k})", lambda v: attention.TopK(int(v["k"])), (Setting("k", 1, 8, 2, step=1),)),
    Part("hardmax", "hardmax", lambda _: attention.hardmax),
    Part("sigmoid", "sigmoid", lambda _: attention.sigmoid),
    Part("SigmoidSum", "SigmoidSum()", lambda _: attention.SigmoidSum()),
    Part("kernel_sum", "kernel_sum", lambda _: attention.kernel_sum),
    Part(
        "Sample",
        "Sample(torch.Generator().manual_seed({seed}))",
        lambda v: attention.Sample(torch.Generator().manual_seed(int(v["seed"]))),
        (SEED,),
    ),
)
MASKS = (
    Part("causal", "causal()", lambda _: attention.causal()),
    Part(
        "padding", "padding({length})", lambda v: attention.padding(int(v["length"])), (Setting("length", 0, 64, 4, 1),)
    ),
    Part(
        "window",
        "window({left}, {right})",
        lambda v: attention.window(int(v["left"]), int(v["right"])),
        (Setting("left", 0, 16, 1, 1), Setting("right", 0, 16, 1, 1)),
    ),
    Part(
        "around",
        "around({center}, {radius})",
        lambda v: attention.around(v["center"], v["radius"]),
        (Setting("center", 0.0, 16.0, 2.0, 0.5), Setting("radius", 0.0, 16.0, 1.0, 0.5)),
    ),
)
KINDS: dict[str, tuple[Part, ...]] = {"score": SCORES, "normalizer": NORMALIZERS, "mask": MASKS}


def made(kind: str, name: str, given: Values, query_dim: int, key_dim: int) -> tuple[Any, str]:
    """The part of this name with these settings, and the Python that makes the same.

    >>> made("score", "Cosine", {"strength": 2.0}, 2, 2)[1]
    'Cosine(strength=2.0)'
    """
    part = next((part for part in KINDS[kind] if part.name == name), None)
    if part is None:
        names = ", ".join(part.name for part in KINDS[kind])
        raise RequestError(422, "no_part", f"The playground has no {kind} of this name; it has {names}.")
    known = {one.name: one for one in part.settings}
    for unknown in given.keys() - known.keys():
        takes = ", ".join(known) or "no settings"
        raise RequestError(422, "no_setting", f"{name} has no setting {unknown[:40]!r}; it takes {takes}.")
    values = {name: one.checked(given.get(name, one.start)) for name, one in known.items()}
    sizes = {"query_dim": query_dim, "key_dim": key_dim}
    return part.build({**values, **sizes}), part.code.format(**values, **sizes)
