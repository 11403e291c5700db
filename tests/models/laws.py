"""Laws of all encoder-decoder models: each is a function that asserts."""

from itertools import chain

import pytest
import torch

PAD, UNK, BOS, EOS = range(4)
SRC_VOCAB_SIZE, TGT_VOCAB_SIZE = 11, 13


def close(a, b, atol=1e-5):
    torch.testing.assert_close(a, b, atol=atol, rtol=1e-5)


def sample_pairs(lengths=(6, 3, 1, 5), target_length=6, seed=0):
    """Sources of these lengths that end with EOS, their lengths, and targets that begin with BOS."""
    generator = torch.Generator().manual_seed(seed)
    source = torch.full((len(lengths), max(lengths)), PAD)
    for row, length in enumerate(lengths):
        source[row, : length - 1] = torch.randint(4, SRC_VOCAB_SIZE, (length - 1,), generator=generator)
        source[row, length - 1] = EOS
    target = torch.randint(4, TGT_VOCAB_SIZE, (len(lengths), target_length), generator=generator)
    target[:, 0] = BOS
    return source, torch.tensor(lengths), target


def steps_equal_forward(model):
    """The logits of single steps are those of the whole target."""
    source, lengths, target = sample_pairs()
    state = model.start_decoding(source, lengths)
    steps = torch.stack([state.step(target[:, t]) for t in range(target.shape[1])], 1)
    close(steps, model(source, lengths, target))


def hidden_states_give_logits(model):
    """`forward` is `lm_head` of `forward_hidden`."""
    pairs = sample_pairs()
    assert torch.equal(model(*pairs), model.lm_head(model.forward_hidden(*pairs)))


def rows_are_independent(model):
    """A row of a batch, with any tokens as padding, is the row alone."""
    source, lengths, target = sample_pairs()
    garbage = torch.randint(0, SRC_VOCAB_SIZE, source.shape)
    is_padding = torch.arange(source.shape[1]) >= lengths[:, None]
    together = model(torch.where(is_padding, garbage, source), lengths, target)
    wider = torch.cat([source, torch.randint(0, SRC_VOCAB_SIZE, (len(source), 4))], 1)
    close(model(wider, lengths, target), together)
    for row in (1, 2):
        length = int(lengths[row])
        alone = model(source[row : row + 1, :length], lengths[row : row + 1], target[row : row + 1])
        close(together[row], alone[0])


def later_tokens_are_hidden(model):
    source, lengths, target = sample_pairs()
    other = target.clone()
    other[:, 4:] = (other[:, 4:] - 4 + 1) % (TGT_VOCAB_SIZE - 4) + 4
    first, second = model(source, lengths, target), model(source, lengths, other)
    close(first[:, :4], second[:, :4], atol=1e-6)
    assert not torch.allclose(first[:, 4:], second[:, 4:], atol=1e-3)


def reordered_rows_continue(model):
    """After any reordering each row continues as if it had been decoded alone from the start."""
    source, lengths, _ = sample_pairs()
    state = model.start_decoding(source, lengths)
    histories = [[i, []] for i in range(len(source))]  # the source of each row, and its tokens so far
    tokens = torch.randint(4, TGT_VOCAB_SIZE, (12, 20))
    choices = [[2, 0, 1, 3], [0, 0, 3, 3, 1], [1, 0, 3, 2, 4], [4, 2, 0], [2, 2, 1, 0, 0, 1]]
    for t, rows in enumerate(choices):
        new_tokens = tokens[t, : len(histories)]
        logits = state.step(new_tokens)
        for row, token in zip(histories, new_tokens.tolist(), strict=True):
            row[1].append(token)
        sources = torch.tensor([i for i, _ in histories])
        prefixes = torch.tensor([prefix for _, prefix in histories])
        close(logits, model(source[sources], lengths[sources], prefixes)[:, -1])
        state.reorder(torch.tensor(rows))
        histories = [[histories[row][0], list(histories[row][1])] for row in rows]


def attention_weights_are_distributions(model, layers, heads, sums_to_one=True):
    """Weights of target tokens over the source: 0 on padding, sum 1, and the same in single steps."""
    source, lengths, target = sample_pairs()
    layer_weights = model.attention_weights(source, lengths, target)
    shape = (len(source), heads, target.shape[1] - 1, source.shape[1])
    assert [tuple(weights.shape) for weights in layer_weights] == [shape] * layers
    for weights in layer_weights:
        is_token = (torch.arange(source.shape[1]) < lengths[:, None])[:, None, None].expand_as(weights)
        assert (weights[~is_token] == 0).all()
        assert (weights >= 0).all()
        if sums_to_one:
            close(weights.sum(-1), torch.ones_like(weights.sum(-1)))
    state, mean = model.start_decoding(source, lengths), torch.stack(layer_weights).mean((0, 2))
    for t in range(target.shape[1] - 1):
        state.step(target[:, t])
        close(state.weights(), mean[:, t])


def all_parameters_get_gradients(model):
    source, lengths, target = sample_pairs()
    model.train()
    torch.manual_seed(1)
    logits = model(source, lengths, target)
    torch.nn.functional.cross_entropy(logits.flatten(0, 1), target.roll(-1, 1).flatten()).backward()
    without = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.abs().max() > 0]
    assert without == []


def assert_equal_hypotheses(actual, expected):
    """Two searches of the same sources have the same tokens and, up to rounding, the same scores."""
    tokens = [[[hypothesis.token_ids for hypothesis in row] for row in rows] for rows in (actual, expected)]
    assert tokens[0] == tokens[1]
    for a, b in zip(chain(*actual), chain(*expected), strict=True):
        assert a.score == pytest.approx(b.score, abs=1e-4)
