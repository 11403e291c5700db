"""Rotary positions: queries and keys are rotated by angles proportional to their positions, before any score.

Query i has key position i + offset, by default keys - queries, so that a decoder with a cache needs no offset.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from regard.attention._common import instantiate, upcast_half
from regard.attention.masks import Mask, PositionGrid
from regard.attention.scores.base import DotProductFeatures, Score
from regard.attention.scores.dot import ScaledDot
from regard.errors import DtypeError, ShapeError, UsageError

__all__ = ["Rotary"]

DEFAULT_BASE = 10000.0
COMMON_KEYS = {"rope_type", "type", "rope_theta", "partial_rotary_factor"}
SCALING_KEYS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "default": ((), ()),
    "linear": (("factor",), ()),
    "dynamic": (("factor", "original_max_position_embeddings"), ()),
    "yarn": (
        ("factor", "original_max_position_embeddings"),
        ("attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate"),
    ),
    "llama3": (("factor", "original_max_position_embeddings", "low_freq_factor", "high_freq_factor"), ()),
}
"""The types of scaling: the keys that each requires, and those that it may have."""


class Rotary(Score):
    """Rotates queries and keys by angles proportional to their positions: the score depends on their distance.

        score(R_i q, R_j k)          R_i rotates each pair of features by i / base^(2 pair / d)

    Features 2j and 2j + 1 make a pair, as in the paper and GPT-J, or j and j + d / 2, as in Llama and GPT-NeoX.

    ``scaling`` is the dict ``rope_scaling`` or ``rope_parameters`` of a Hugging Face config, of one of these types:

        default   unscaled
        linear    frequency / factor
        dynamic   NTK: base grows with the number of keys beyond original_max_position_embeddings
        yarn      low frequencies / factor, high ones unchanged; both vectors times attention_factor
        llama3    the same with other limits, low_freq_factor and high_freq_factor

    Its rope_theta replaces the base, and its partial_rotary_factor gives rotary_dim.

    Args:
        score: the score of the rotated vectors; ScaledDot() by default
        base: the ratio of the longest wavelength to the shortest, approximately ("rope_theta")
        offset: the key position of the first query; keys - queries by default
        interleaved: whether pairs are neighbors; False for the layout of Hugging Face's Llama ("rotate half")
        rotary_dim: how many of the first features are rotated; all by default
        scaling: how frequencies are scaled for long sequences; not by default
        positions: (*batch, keys), the position of each key, as in packed or left-padded sequences; 0, 1, ... by
            default. The attribute ``positions`` can be set before each call. The query at key position i has
            ``positions[..., i]``

    Shape: query (*batch, queries, dim), key (*batch, keys, dim) -> (*batch, queries, keys)

    Reference: Su et al. (2021), arXiv 2104.09864; yarn: Peng et al. (2023), arXiv 2309.00071.

    Example:
        >>> Rotary(ScaledDot())(torch.randn(2, 3, 4), torch.randn(2, 5, 4)).shape
        torch.Size([2, 3, 5])
        >>> llama = Rotary(base=500000.0, interleaved=False, scaling={"rope_type": "linear", "factor": 8.0})
        >>> llama(torch.randn(2, 3, 4), torch.randn(2, 5, 4)).shape
        torch.Size([2, 3, 5])
    """

    repr_settings = ("base", "offset")

    is_positional = is_relative = True
    positions: Tensor | None

    def __init__(
        self,
        score: Score | type[Score] | None = None,
        base: float = DEFAULT_BASE,
        offset: int | None = None,
        *,
        interleaved: bool = True,
        rotary_dim: int | None = None,
        scaling: Mapping[str, Any] | None = None,
        positions: Tensor | None = None,
    ):
        super().__init__()
        self.score: Score = ScaledDot() if score is None else instantiate(score, "score")
        self.offset, self.interleaved, self.rotary_dim = offset, interleaved, rotary_dim
        self.scaling = check_scaling(scaling)
        self.base = self.scaling.pop("rope_theta", base)
        if base not in (DEFAULT_BASE, self.base):
            raise UsageError(f"Rotary: scaling has rope_theta={self.base}, but base={base}; leave one of them out")
        self._rotary_share = self.scaling.pop("partial_rotary_factor", 1.0)
        if rotary_dim is not None and (rotary_dim < 2 or rotary_dim % 2 or self._rotary_share != 1.0):
            raise UsageError(
                f"Rotary: rotary_dim must be an even number, 2 or more, without a partial_rotary_factor in scaling, "
                f"got {rotary_dim}"
            )
        self.register_buffer("positions", positions, persistent=False)
        self.output_kind, self.is_random = self.score.output_kind, self.score.is_random
        self.computes_bias = self.score.computes_bias

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Rotary:
        """Positions move with the module, but keep their dtype: half precision would round them."""
        before = self.positions
        super()._apply(fn, recurse)
        if before is not None and self.positions is not None and self.positions.dtype != before.dtype:
            wide = before.dtype != torch.float64 or self.positions.device.type != "mps"  # which has no float64
            self.positions = before.to(self.positions.device, before.dtype if wide else torch.float32)
        return self

    def check_dims(self, query: Tensor, key: Tensor) -> None:
        self.score.check_dims(query, key)
        for name, tensor in (("query", query), ("key", key)):
            size = self._rotated_size(tensor)
            if size % 2:
                raise ShapeError(f"Rotary rotates pairs of features, got {name} {tuple(tensor.shape)} of odd size")
            if size > tensor.shape[-1]:
                raise ShapeError(
                    f"Rotary expects at least rotary_dim={size} features, got {name} {tuple(tensor.shape)}"
                )
        if self.positions is not None:
            self._check_positions(self.positions, query, key)

    def _check_positions(self, positions: Tensor, query: Tensor, key: Tensor) -> None:
        if positions.dtype == torch.bool or positions.is_complex():
            raise DtypeError(f"Rotary: positions must be a tensor of numbers, got {positions.dtype}")
        lead, keys, queries = positions.shape[:-1], key.shape[-2], query.shape[-2]
        first = keys - queries if self.offset is None else self.offset
        fits = positions.dim() > 0 and positions.shape[-1] == keys
        for tensor in (query, key) if lead else ():
            fits = fits and len(lead) <= tensor.dim() - 2 and query.dim() == key.dim()
            fits = fits and all(a == b or a == 1 for a, b in zip(lead, tensor.shape, strict=False))
        if not fits:
            raise ShapeError(
                f"Rotary: positions must be (*batch, keys) = {(*key.shape[:1], keys)} with the leading axes of query "
                f"and key, got {tuple(positions.shape)} for query {tuple(query.shape)} and key {tuple(key.shape)}"
            )
        if first < 0 or first + queries > keys:
            raise ShapeError(
                f"Rotary: with positions every query stands at a key, got {queries} queries from key position {first} "
                f"on, and {keys} keys"
            )

    @property
    def pairwise(self) -> Score:
        return self.score.pairwise

    def project_query(self, query: Tensor, num_keys: int) -> Tensor:
        length = query.shape[-2]
        first = num_keys - length if self.offset is None else self.offset
        positions = None if self.positions is None else self.positions[..., first : first + length]
        return self.score.project_query(self._rotate(query, positions, first, num_keys), num_keys)

    def project_key(self, key: Tensor) -> Tensor:
        return self.score.project_key(self._rotate(key, self.positions, 0, key.shape[-2]))

    def dot_product_features(self, query: Tensor, key: Tensor, mask: Mask | None) -> DotProductFeatures | None:
        if self.positions is not None and self.positions.dim() > 1 and query.dim() != key.dim():
            return None  # values or mask have more axes: the leading axes of the query are no longer those of positions
        return super().dot_product_features(query, key, mask)

    def restrict(self, grid: PositionGrid) -> Score | None:
        """None: only ``pairwise``, whose vectors are rotated already, can be restricted."""
        return None

    def extra_repr(self) -> str:
        settings = [super().extra_repr()]
        settings += [] if self.interleaved else ["interleaved=False"]
        settings += [] if self.rotary_dim is None else [f"rotary_dim={self.rotary_dim}"]
        settings += [f"scaling={self.scaling}"] if self.scaling else []
        return ", ".join(settings)

    def _rotated_size(self, vectors: Tensor) -> int:
        return int(vectors.shape[-1] * self._rotary_share) if self.rotary_dim is None else self.rotary_dim

    def _rotate(self, vectors: Tensor, positions: Tensor | None, first: int, num_keys: int) -> Tensor:
        """The rotated vectors at ``positions``, or from position ``first`` on."""
        wide, size = upcast_half(vectors), self._rotated_size(vectors)
        # At large positions float32 has no accurate angles; Apple's GPUs have no float64.
        exact = torch.float32 if wide.device.type == "mps" else torch.float64
        if positions is None:
            positions = torch.arange(vectors.shape[-2], device=wide.device, dtype=exact) + first
        frequencies = self.base ** (-torch.arange(0, size, 2, device=wide.device, dtype=exact) / size)
        attention_factor = 1.0
        if self.scaling:
            length = num_keys if self.positions is None else self.positions.max() + 1
            frequencies, attention_factor = scale_frequencies(frequencies, self.scaling, self.base, length)
        angle = positions.to(wide.device, exact)[..., None] * frequencies
        if angle.dim() > 2:  # the batch axes of positions are the leading ones
            angle = angle.reshape(*angle.shape[:-2], *[1] * (wide.dim() - angle.dim()), *angle.shape[-2:])
        cos, sin = angle.cos().to(wide.dtype), angle.sin().to(wide.dtype)
        if attention_factor != 1.0:
            cos, sin = cos * attention_factor, sin * attention_factor
        rotated = wide if size == wide.shape[-1] else wide[..., :size]
        if self.interleaved:
            even, odd = rotated[..., 0::2], rotated[..., 1::2]
            rotated = torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1).flatten(-2)
        else:
            low, high = rotated.chunk(2, -1)
            rotated = torch.cat([low * cos - high * sin, low * sin + high * cos], -1)
        if size != wide.shape[-1]:
            rotated = torch.cat([rotated, wide[..., size:]], -1)
        return rotated.to(vectors.dtype)


def check_scaling(scaling: Mapping[str, Any] | None) -> dict[str, Any]:
    """The settings of a scaling without those that are None; empty for the type "default".

    Args:
        scaling: ``rope_scaling`` or ``rope_parameters`` of a config, or None

    Returns: the settings, or an error that names an unknown type, a missing or an unknown key, or a wrong value

    Example:
        >>> check_scaling({"type": "linear", "factor": 2})
        {'factor': 2, 'rope_type': 'linear'}
    """
    if scaling is None:
        return {}
    if not isinstance(scaling, Mapping):
        raise UsageError(f"Rotary: scaling must be a dict such as config.rope_parameters, got {type(scaling).__name__}")
    settings = {key: value for key, value in scaling.items() if value is not None and key not in ("rope_type", "type")}
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind not in SCALING_KEYS:
        raise UsageError(f"Rotary: unknown rope_type {kind!r} of scaling; known types are {', '.join(SCALING_KEYS)}")
    required, optional = SCALING_KEYS[kind]
    missing = [key for key in required if key not in settings]
    if missing:
        raise UsageError(
            f"Rotary: scaling of type {kind!r} needs {missing[0]}; original_max_position_embeddings is "
            "max_position_embeddings of the config if it has no such key"
        )
    for key, value in settings.items():
        if key not in {*COMMON_KEYS, *required, *optional}:
            raise UsageError(
                f"Rotary: unknown key {key!r} in scaling of type {kind!r}; its keys are "
                f"{', '.join((*required, *optional, 'rope_theta', 'partial_rotary_factor'))}"
            )
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < math.inf
        if not (isinstance(value, bool) if key == "truncate" else is_number):
            kind_of_value = "True or False" if key == "truncate" else "a positive number"
            raise UsageError(f"Rotary: {key} in scaling must be {kind_of_value}, got {value!r}")
    if kind == "llama3" and settings["high_freq_factor"] <= settings["low_freq_factor"]:
        raise UsageError("Rotary: high_freq_factor in scaling must be above low_freq_factor")
    return settings if kind == "default" else {**settings, "rope_type": kind}


def scale_frequencies(
    frequencies: Tensor, scaling: Mapping[str, Any], base: float, length: int | Tensor
) -> tuple[Tensor, float]:
    """Scaled frequencies, and the factor of the rotated vectors.

    Args:
        frequencies: the angles of one position, (pairs,)
        scaling: the checked settings
        base: the base of the frequencies
        length: the length of the sequence, for the type "dynamic"

    Shape: frequencies (pairs,) -> (pairs,)

    Returns: the frequencies and the attention factor

    Example:
        >>> scale_frequencies(torch.tensor([1.0, 0.01]), {"rope_type": "linear", "factor": 4}, 10000.0, 5)
        (tensor([0.2500, 0.0025]), 1.0)
    """
    kind, factor = scaling["rope_type"], scaling["factor"]
    if kind == "linear":
        return frequencies / factor, 1.0
    pairs, trained = len(frequencies), scaling["original_max_position_embeddings"]
    if kind == "dynamic":
        # A sum, as torch.tensor(length) would be a constant of an exported program.
        longest = length.to(frequencies) if isinstance(length, Tensor) else frequencies.new_zeros(()) + length
        ratio = longest.clamp(min=trained) / trained
        exponents = torch.arange(pairs, device=frequencies.device, dtype=frequencies.dtype) / max(pairs - 1, 1)
        return frequencies * (factor * ratio - (factor - 1)) ** -exponents, 1.0
    if kind == "llama3":
        low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
        rotations = trained * frequencies / (2 * math.pi)  # within the length of the training
        share = ((rotations - low) / (high - low)).clamp(0, 1)
        return frequencies * ((1 - share) / factor + share), 1.0

    def find_pair(rotations: float) -> float:
        return pairs * math.log(trained / (rotations * 2 * math.pi)) / math.log(base)

    first, last = find_pair(scaling.get("beta_fast", 32)), find_pair(scaling.get("beta_slow", 1))
    if scaling.get("truncate", True):
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, 2 * pairs - 1)
    index = torch.arange(pairs, device=frequencies.device, dtype=frequencies.dtype)
    share = 1 - ((index - first) / (last - first or 0.001)).clamp(0, 1)
    return frequencies * ((1 - share) / factor + share), _find_attention_factor(scaling)


def _find_attention_factor(scaling: Mapping[str, Any]) -> float:
    """The factor of yarn by which both rotated vectors are multiplied."""

    def compute(mscale: float) -> float:
        return 0.1 * mscale * math.log(scaling["factor"]) + 1.0 if scaling["factor"] > 1 else 1.0

    if "attention_factor" in scaling:
        return float(scaling["attention_factor"])
    if "mscale" in scaling and "mscale_all_dim" in scaling:
        return compute(scaling["mscale"]) / compute(scaling["mscale_all_dim"])
    return compute(1.0)
