"""Names of weights in a state dict of regard and in one of Hugging Face, by a table that is read both ways."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from regard.errors import ExportError, WeightsMismatchError

__all__ = ["Rule", "read_weights", "write_weights"]

NUM_PARTS = 3  # query, key and value in one matrix


@dataclass(frozen=True)
class Rule:
    r"""Where the weights with names of a pattern are in the other state dict.

    Args:
        ours: a regular expression for names of regard
        theirs: the name of Hugging Face; \1 is the first group of `ours`
        transpose: whether theirs is transposed (GPT-2's Conv1D)
        part: theirs has three parts along its outputs, of which ours is this one
        skip_rows: rows of theirs before the first position
        scale: ours is theirs times this number
        is_row: theirs has an axis of size 1 before those of ours
        is_optional: zeros if theirs is missing

    Example:
        >>> Rule(r"layers\.(\d+)\.norm1", r"h.\1.ln_1").their_name("layers.3.norm1.weight")
        'h.3.ln_1.weight'
    """

    ours: str
    theirs: str
    transpose: bool = False
    part: int | None = None
    skip_rows: int = 0
    scale: float = 1.0
    is_row: bool = False
    is_optional: bool = False

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile(self.ours + r"(?=\.|$)")

    def their_name(self, name: str) -> str | None:
        """The name of Hugging Face for a name of regard; None if the rule is not for it.

        Args:
            name: in a state dict of regard
        """
        match = self._pattern.match(name)
        return None if match is None else match.expand(self.theirs) + name[match.end() :]

    def to_ours(self, tensor: Tensor) -> Tensor:
        """Their tensor in the form of regard."""
        tensor = tensor.t() if self.transpose and tensor.dim() == 2 else tensor
        tensor = tensor if self.part is None else tensor.chunk(NUM_PARTS)[self.part]
        tensor = tensor[self.skip_rows :] if self.skip_rows else tensor
        tensor = tensor[0] if self.is_row else tensor
        return tensor if self.scale == 1 else tensor * self.scale

    def to_theirs(self, tensor: Tensor, before: Tensor | None) -> Tensor:
        """Our tensor in the form of Hugging Face.

        Args:
            tensor: ours
            before: what earlier parts have written, in the form of regard
        """
        tensor = tensor if self.scale == 1 else tensor / self.scale
        tensor = (
            tensor if not self.skip_rows else torch.cat((tensor.new_zeros(self.skip_rows, tensor.shape[1]), tensor))
        )
        if self.part is None:
            return tensor[None] if self.is_row else tensor
        return tensor if before is None else torch.cat((before, tensor))


def read_weights(
    model: nn.Module,
    theirs: Mapping[str, Tensor],
    rules: Sequence[Rule],
    *,
    copies: Sequence[tuple[str, str]],
    path: str,
) -> dict[str, Tensor]:
    """Weights of Hugging Face as the state dict of a model of regard; none may be missing or left over.

    Args:
        model: of regard; it may be on the device "meta"
        theirs: state dict of Hugging Face
        rules: where its weights are
        copies: patterns of names of theirs that regard does not need, and of which weight each is a copy; empty if it
            is a table or a head that the model does not have
        path: of the weights, for messages

    Returns:
        The state dict.
    """
    used, state = set(), {}
    for name, ours in model.state_dict().items():
        rule, their_name = _find_rule(name, rules)
        used.add(their_name)
        if their_name not in theirs:
            if not rule.is_optional:
                raise WeightsMismatchError(
                    f"{path} has no weight {their_name}, which the model of its config.json needs"
                )
            state[name] = torch.zeros(ours.shape)
            continue
        tensor = rule.to_ours(theirs[their_name])
        if tensor.shape != ours.shape:
            raise WeightsMismatchError(
                f"{path}: {their_name} has shape {tuple(theirs[their_name].shape)}, which does not fit config.json"
            )
        if not tensor.isfinite().all():
            raise WeightsMismatchError(f"{path}: {their_name} is not finite: it has NaN or infinite values")
        state[name] = tensor
    for name in sorted(theirs.keys() - used):
        original = next((match.expand(target) for match, target in _match(name, copies)), None)
        if original is None:
            raise WeightsMismatchError(
                f"{path} has the weight {name}, which regard does not know; the model is another one"
            )
        if original and not torch.equal(theirs[name], theirs[original]):
            raise WeightsMismatchError(f"{path}: {name} must be a copy of {original}, but differs from it")
    return state


def _match(name: str, copies: Sequence[tuple[str, str]]) -> list[tuple[re.Match[str], str]]:
    return [(match, target) for pattern, target in copies if (match := re.fullmatch(pattern, name))]


def _find_rule(name: str, rules: Sequence[Rule]) -> tuple[Rule, str]:
    for rule in rules:
        if (their_name := rule.their_name(name)) is not None:
            return rule, their_name
    raise ExportError(f"the weight {name} has no counterpart in this layout of Hugging Face")


def write_weights(model: nn.Module, rules: Sequence[Rule]) -> dict[str, Tensor]:
    """The state dict of Hugging Face for a model of regard; weights that are shared are written once.

    Args:
        model: of regard
        rules: where its weights are

    Returns:
        the state dict
    """
    theirs: dict[str, Tensor] = {}
    transposed: set[str] = set()
    for name, tensor in model.state_dict().items():
        rule, their_name = _find_rule(name, rules)
        is_part = rule.part is not None
        theirs[their_name] = rule.to_theirs(tensor.detach(), theirs.get(their_name) if is_part else None)
        if rule.transpose and tensor.dim() == 2:
            transposed.add(their_name)
    return {name: (one.t() if name in transposed else one).contiguous() for name, one in theirs.items()}
