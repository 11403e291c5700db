"""One teacher-forced pass over given targets: their scores and their attention weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.decoding.config import DecodingConfig
from regard.decoding.types import Hypothesis, eval_mode
from regard.errors import UsageError

__all__ = ["attention_over_hypotheses", "score_targets"]

CHUNK_SIZE = 1024  # positions whose log-probabilities over the vocabulary are in memory at a time


def score_targets(
    model: nn.Module,
    source: Int[Tensor, "rows src_len"],
    source_lengths: Int[Tensor, " rows"],
    target: Int[Tensor, "rows tgt_len"],
    target_lengths: Int[Tensor, " rows"],
    config: DecodingConfig = DecodingConfig(),
    *,
    eos: int = 3,
) -> list[Hypothesis]:
    """Score given targets (forced decoding): one teacher-forced pass in eval mode.

    Args:
        model: has `forward_hidden(source, source_lengths, target[:, :-1])` and the output layer `lm_head`
        source, source_lengths: as for `decode`
        target: token ids that begin with BOS, padded; a target without EOS at its end is scored as unfinished
        target_lengths: their numbers of tokens, including BOS
        config: its length penalty is applied; the coverage penalty is not
        eos: id of EOS

    Shape:
        - source: (rows, src_len), source_lengths: (rows,)
        - target: (rows, tgt_len), target_lengths: (rows,)

    Returns:
        The hypothesis of each row.

    Example:
        >>> from regard.attention import Additive, Attention
        >>> from regard.models import RNNSeq2Seq
        >>> model = RNNSeq2Seq(10, 10, Attention(Additive(8, 8, 4)), embed_dim=4, hidden_dim=8)
        >>> source, lengths = torch.tensor([[5, 6, 3], [7, 3, 0]]), torch.tensor([3, 2])
        >>> target, target_lengths = torch.tensor([[2, 8, 9, 3], [2, 8, 3, 0]]), torch.tensor([4, 3])
        >>> [len(one.token_log_probs) for one in score_targets(model, source, lengths, target, target_lengths)]
        [3, 2]
    """
    if target_lengths.numel() and int(target_lengths.min()) < 2:
        row = int(target_lengths.argmin())
        raise UsageError(f"score_targets: target {row} has no token after BOS; add at least EOS")
    with eval_mode(model):
        hidden = cast(Any, model).forward_hidden(source, source_lengths, target[:, :-1])
        is_token = torch.arange(1, target.shape[1], device=target.device) < target_lengths[:, None]
        # in chunks: the logits of all positions might not fit into memory
        chunks = zip(hidden[is_token].split(CHUNK_SIZE), target[:, 1:][is_token].split(CHUNK_SIZE), strict=True)
        logits = ((model.get_submodule("lm_head")(states).float(), tokens) for states, tokens in chunks)
        log_probs = torch.cat([-nn.functional.cross_entropy(*pair, reduction="none") for pair in logits])
    counts = (target_lengths - 1).tolist()
    token_ids = (row[1 : count + 1] for row, count in zip(target.tolist(), counts, strict=True))
    hypotheses = []
    for ids, row in zip(token_ids, log_probs.split(counts), strict=True):
        finished, token_log_probs = ids[-1] == eos, row.tolist()
        total = math.fsum(token_log_probs)
        score = total / config.length_norm(len(ids))
        hypotheses.append(Hypothesis(ids[:-1] if finished else ids, score, total, token_log_probs, finished))
    return hypotheses


def attention_over_hypotheses(
    model: Any,
    source: Int[Tensor, "rows src_len"],
    source_lengths: Int[Tensor, " rows"],
    hypotheses: Sequence[Hypothesis],
    *,
    bos: int = 2,
    eos: int = 3,
    pad: int = 0,
) -> list[Float[Tensor, "layers heads _ _"]]:
    """Attention weights of one hypothesis for each source: one teacher-forced pass in eval mode.

    Args:
        model: has `attention_weights(source, source_lengths, target)`
        source, source_lengths: as for `decode`
        hypotheses: one of each row, from any search or from elsewhere
        bos, eos, pad: ids of the special tokens

    Shape:
        - source: (rows, src_len), source_lengths: (rows,)
        - returns: (layers, heads, tgt_len, src_len) for each row, with the lengths of this row

    Returns:
        For each row the weights of shape (layers, heads, tgt_len, src_len), on the CPU and without padding: a row for
        every token, and for EOS if the hypothesis is finished. A model without attention gives 0 layers of 0 heads.

    Example:
        >>> from regard.attention import Additive, Attention
        >>> from regard.models import RNNSeq2Seq
        >>> model = RNNSeq2Seq(10, 10, Attention(Additive(8, 8, 4)), embed_dim=4, hidden_dim=8)
        >>> source, lengths = torch.tensor([[5, 6, 3], [7, 3, 0]]), torch.tensor([3, 2])
        >>> from regard.decoding import greedy
        >>> hypotheses = greedy(model, source, lengths, DecodingConfig(max_length=4))
        >>> [weights.shape[-1] for weights in attention_over_hypotheses(model, source, lengths, hypotheses)]
        [3, 2]
    """
    if len(hypotheses) != len(source):
        expected = f"expected one hypothesis for each of {len(source)} sources"
        raise UsageError(f"attention_over_hypotheses: {expected}, not {len(hypotheses)}")
    if not hypotheses:
        return []
    rows = [[bos, *hypothesis.token_ids, *([eos] if hypothesis.finished else [])] for hypothesis in hypotheses]
    sequences = [torch.tensor(row, device=source.device) for row in rows]
    target = nn.utils.rnn.pad_sequence(sequences, batch_first=True, padding_value=pad)
    with eval_mode(model):
        layers = model.attention_weights(source, source_lengths, target)
    no_weights = torch.zeros(len(rows), 0, 0, target.shape[1] - 1, source.shape[1])
    weights = torch.stack(list(layers), 1).float().cpu() if layers else no_weights
    sizes = zip(weights, rows, source_lengths.tolist(), strict=True)
    return [padded[:, :, : len(row) - 1, :length] for padded, row, length in sizes]
