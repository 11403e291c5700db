"""What a family of checkpoints defines: its model, and the names of its weights."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from regard.attention import MultiHead
from regard.errors import ExportError
from regard.models.pretrained.fields import ConfigFields
from regard.models.pretrained.rules import Rule

__all__ = ["Copies", "Description", "Family", "check_standard_attention", "only_value"]

Copies = Sequence[tuple[str, str]]
Description = dict[str, Any]  # config.json


@dataclass(frozen=True)
class Family:
    """Checkpoints with one layout.

    Args:
        model_types: values of `model_type` in config.json
        build: from the fields of config.json and the names of the weights to a model of regard
        rules: where the weights of the model are in the checkpoint
        copies: weights of the checkpoint that regard does not need, see `read_weights`
        prefix: of the names of all weights but those of heads; some checkpoints leave it out
        heads: beginnings of names without the prefix
        harmless: patterns of fields of config.json that do not matter
        model_class: of the models that `describe` takes
        takes: whether a model of this class is for this layout, where several layouts have the class
        describe: from a model of regard to config.json; ExportError if it has no counterpart
        prepare: the model with the parts of the layout, for a number of positions
        verify: from the model and the weights of the checkpoint to what is wrong with them; empty if nothing is
    """

    model_types: tuple[str, ...]
    build: Callable[[ConfigFields, Collection[str]], nn.Module]
    rules: Callable[[nn.Module], Sequence[Rule]]
    copies: Callable[[nn.Module], Copies]
    prefix: str
    heads: tuple[str, ...]
    harmless: tuple[str, ...] = ()
    model_class: tuple[type[nn.Module], ...] = ()
    takes: Callable[[Any], bool] = lambda model: True
    describe: Callable[[Any], Description] | None = None
    prepare: Callable[[Any, int], nn.Module] | None = None
    verify: Callable[[Any, Mapping[str, Tensor]], str] | None = None

    def complete_names(self, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The weights by their current names: with the prefix, and without the words of the first layer norms.

        Args:
            weights: as in the file
        """
        renamed = {_modernize(name): tensor for name, tensor in weights.items()}
        if any(name.startswith(f"{self.prefix}.") for name in renamed):
            return renamed
        return {name if name.startswith(self.heads) else f"{self.prefix}.{name}": one for name, one in renamed.items()}


def _modernize(name: str) -> str:
    stem, _, last = name.rpartition(".")
    return f"{stem}.{ ({'gamma': 'weight', 'beta': 'bias'}.get(last, last)) }" if stem else name


def only_value(what: str, values: Collection[Any]) -> Any:
    """The value that all layers share; ExportError if they differ.

    Args:
        what: of which it is the value, for the message
        values: of all layers
    """
    if len(unique := set(values)) != 1:
        raise ExportError(
            f"the layers differ in {what} ({', '.join(map(str, sorted(unique, key=str)))}); this layout has one"
        )
    return unique.pop()


def check_standard_attention(model: nn.Module, layout: str) -> None:
    """Raise ExportError for attention other than `MultiHead.is_scaled_dot_product` with a bias in every projection.

    Args:
        model: with `MultiHead` layers
        layout: name of the layout, for the message
    """
    for part in (module for module in model.modules() if isinstance(module, MultiHead)):
        if not part.is_scaled_dot_product or part.q_proj.bias is None:
            raise ExportError(
                f"transformers' {layout} has softmax of scaled dot products only, with a bias in every projection,"
                " embed_dim / num_heads features and neither norms nor extra keys, and this model has another"
                " attention; export it to safetensors, which regard loads"
            )
