"""A sink: a score per head that takes weight without a key."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from regard.attention.module import Device, Dtype
from regard.attention.normalizers import base
from regard.attention.normalizers.base import NormalizeFunction
from regard.attention.normalizers.wrappers import NormalizerWrapper
from regard.errors import ShapeError, UsageError

__all__ = ["WithSink"]


class WithSink(NormalizerWrapper):
    """A learned score for each head that takes weight without a key, so that the weights sum to less than 1.

        w = normalize([s_1, ..., s_n, sink_h]) without its last number

    Args:
        normalize: the wrapped normalizer of logits, such as softmax
        num_heads: the number of heads, the axis before the queries; 1 for one sink of all heads
        sinks: the scores (num_heads,), such as a parameter of another module; learned from zeros by default
        device: the device of the sinks
        dtype: the dtype of the sinks

    Shape: scores (*batch, heads, queries, keys), -inf for hidden keys -> weights of the same shape

    Reference: OpenAI (2025), "gpt-oss-120b and gpt-oss-20b Model Card", arXiv 2508.10925, 2.2.

    Example:
        >>> WithSink(softmax, num_heads=1)(torch.tensor([[0.0, 0.0, -torch.inf]]))
        tensor([[0.3333, 0.3333, 0.0000]], grad_fn=...)
    """

    repr_settings = ("num_heads",)

    sinks: Tensor

    def __init__(
        self,
        normalize: NormalizeFunction,
        num_heads: int,
        *,
        sinks: Tensor | None = None,
        device: Device = None,
        dtype: Dtype = None,
    ) -> None:
        super().__init__(normalize)
        if self.input_kind != "logits":
            raise UsageError("WithSink: normalize must be one of logits such as softmax; kernel values have no sink")
        if num_heads < 1 or (sinks is not None and sinks.shape != (num_heads,)):
            shape = None if sinks is None else tuple(sinks.shape)
            raise ShapeError(f"WithSink: sinks must be (num_heads,) with num_heads >= 1, got {num_heads} and {shape}")
        self.num_heads = num_heads
        if sinks is None:
            self.sinks = nn.Parameter(torch.zeros(num_heads, device=device, dtype=dtype))
        else:
            base.store_setting(self, "sinks", sinks)

    def _init_parameters(self) -> None:
        if isinstance(self.sinks, nn.Parameter):
            nn.init.zeros_(self.sinks)

    def compute_weights(self, scores: Tensor) -> Tensor:
        if self.num_heads > 1 and (scores.dim() < 3 or scores.shape[-3] != self.num_heads):
            raise ShapeError(
                f"WithSink expects {self.num_heads} heads on the axis before the queries, got scores "
                f"{tuple(scores.shape)}"
            )
        sinks = self.sinks if self.num_heads == 1 else self.sinks[:, None, None]
        column = sinks.to(scores.dtype).expand(*scores.shape[:-1], 1)
        return self.normalize(torch.cat([scores, column], -1))[..., :-1]

    def extra_repr(self) -> str:
        return ", ".join(filter(None, [super().extra_repr(), f"num_heads={self.num_heads}"]))
