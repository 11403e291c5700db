"""What a call of the equation returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.utils import _pytree as pytree

from regard.attention._call import Call, Moment


@dataclass(
    init=False, repr=False, eq=False
)  # DistributedDataParallel looks for tensors in the fields of those
class Attended:
    """What was seen, and on demand how regard was shared out.

    ``context`` is there at once. ``weights`` and ``scores`` (what the normalizer saw, -inf where hidden)
    are computed when they are read, from the very tensors, parameters and modes of the call. Where a key
    was chosen at random, ``log_prob`` is the logarithm of the choice's probability and ``entropy`` that of
    the distribution it came from; otherwise both are None.
    """

    context: Tensor

    def __init__(
        self,
        context: Tensor,
        call: Call,
        look: Callable[[Call], tuple[Tensor, Tensor]],
        seen: tuple[Tensor, Tensor] | None = None,
    ):
        self.context = context
        self._call, self._look, self._seen = call, look, seen
        self._moment = Moment(call) if seen is None else None

    def _read(self) -> tuple[Tensor, Tensor]:
        if self._seen is None:
            assert self._moment is not None
            self._moment.check()
            self._seen = self._moment.again(lambda: self._look(self._call))
        return self._seen

    # Plain properties: functools.cached_property breaks fullgraph compilation before Python 3.12.
    @property
    def scores(self) -> Tensor:
        """(*batch, queries, keys), before normalizing."""
        return self._read()[0]

    @property
    def weights(self) -> Tensor:
        """(*batch, queries, keys), after normalizing, in the dtype of the query."""
        return self._read()[1].to(self._call.query.dtype)

    @property
    def log_prob(self) -> Tensor | None:
        """(*batch, queries): log-probability of the key that was chosen; None unless one was."""
        chooser = _chooser(self._call.normalize)
        return chooser.log_prob(*self._read()) if hasattr(chooser, "log_prob") else None

    @property
    def entropy(self) -> Tensor | None:
        """(*batch, queries): entropy of the distribution the key was chosen from; None unless one was."""
        chooser = _chooser(self._call.normalize)
        return chooser.entropy(self._read()[0]) if hasattr(chooser, "entropy") else None

    def with_context(self, context: Tensor) -> Attended:
        """The same look with a context that was projected or joined afterwards."""
        self.context = context
        return self

    def __iter__(self) -> Any:
        raise TypeError(
            "what attend returns is not a pair: read its .context and, if you want them, its .weights"
        )

    def __repr__(self) -> str:
        return f"Attended(context={tuple(self.context.shape)})"


def _chooser(normalize: Any) -> Any:
    """What chooses: a normalizer itself, or the one inside that it changes the weights of."""
    return getattr(normalize, "chooser", normalize)


class Kept(Attended):
    """An Attended put together from its tensors, as torch.export hands it back."""

    def __init__(self, tensors: list[Any]):
        self.context, weights, scores, self._log_prob, self._entropy = tensors
        self._seen = scores, weights

    @property
    def weights(self) -> Tensor:
        return self._read()[1]

    @property
    def log_prob(self) -> Tensor | None:
        return self._log_prob

    @property
    def entropy(self) -> Tensor | None:
        return self._entropy


def _tensors(seen: Attended) -> tuple[list[Tensor | None], None]:
    return [seen.context, seen.weights, seen.scores, seen.log_prob, seen.entropy], None


for _cls in (Attended, Kept):
    pytree.register_pytree_node(
        _cls,
        _tensors,
        lambda tensors, _: Kept(list(tensors)),
        serialized_type_name=f"regard.{_cls.__name__}",
        to_dumpable_context=lambda _: None,
        from_dumpable_context=lambda _: None,
    )
