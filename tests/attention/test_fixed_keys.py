"""Fixed keys, which are validated once: every call equals a call with all arguments, after any change."""

import pytest
import torch

from regard.attention import (
    Additive,
    Attention,
    Bilinear,
    Constant,
    Dropout,
    MultiHead,
    Rotary,
    Sample,
    ScaledDot,
    causal,
    dense,
    equation,
    hardmax,
    padding,
    softmax,
    window,
)
from regard.attention.observers import register_watcher
from regard.errors import ShapeError, StaleStateError

SCORES = {
    "additive": lambda: Additive(4, 4, 6),
    "dot": ScaledDot,
    "bilinear": lambda: Bilinear(4, 4),
    "constant": Constant,
    "function": lambda: lambda query, key: -torch.cdist(query, key),
}
MASKS = {
    "none": None,
    "padding": padding(torch.tensor([5, 2])),
    "dense": dense(torch.tensor([True, False, True, True, False])),
    "window": window(2, 1),
    "causal": causal(),
}


@pytest.mark.parametrize("mask", list(MASKS))
@pytest.mark.parametrize("score", list(SCORES))
def test_every_call_equals_a_call_with_all_arguments(score, mask):
    attention = Attention(SCORES[score](), hardmax if mask == "dense" else None)
    key, value = torch.randn(2, 5, 4), torch.randn(2, 5, 3)
    memory = attention.precompute(key, value, MASKS[mask])
    for queries in (1, 1, 3, 3, 1):
        query = torch.randn(2, queries, 4, requires_grad=queries == 3)
        ours, theirs = memory(query), attention(query, key, value, MASKS[mask])
        torch.testing.assert_close(ours.context, theirs.context, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(ours.weights, theirs.weights, rtol=1e-6, atol=1e-6)


def test_a_decoding_step_validates_nothing(monkeypatch):
    calls = []
    validate = equation.validate
    monkeypatch.setattr(equation, "validate", lambda *args: calls.append(1) or validate(*args))
    memory = Attention(Additive(4, 4, 6)).precompute(torch.randn(2, 5, 4), torch.randn(2, 5, 3), padding([5, 2]))
    for _ in range(4):
        memory(torch.randn(2, 1, 4))
    assert len(calls) == 1
    with pytest.raises(ShapeError, match="query"):
        memory(torch.randn(2, 1, 3))


def test_invalid_values_are_an_error_of_precompute():
    with pytest.raises(ShapeError, match="every key has one value"):
        Attention(ScaledDot()).precompute(torch.randn(2, 5, 4), torch.randn(2, 4, 3))


def test_a_mask_that_is_changed_in_place():
    lengths = torch.tensor([5, 2])
    memory = Attention(Additive(4, 4, 6)).precompute(torch.randn(2, 5, 4), torch.randn(2, 5, 3), padding(lengths))
    query = torch.randn(2, 1, 4)
    assert (memory(query).weights[1, 0, 2:] == 0).all()
    lengths[1] = 3
    assert (memory(query).weights[1, 0] > 0).tolist() == [True, True, True, False, False]


def test_another_normalizer():
    attention = Attention(Additive(4, 4, 6))
    memory, query = attention.precompute(torch.randn(2, 5, 4), torch.randn(2, 5, 3)), torch.randn(2, 1, 4)
    memory(query)
    attention.normalize = hardmax
    assert set(memory(query).weights.flatten().tolist()) == {0.0, 1.0}


@pytest.mark.parametrize("score", ["additive", "dot"])
def test_training_and_evaluation_mode(score):
    attention = Attention(SCORES[score](), Dropout(softmax, 0.5))
    key = torch.randn(2, 5, 4)
    memory, query = attention.precompute(key, key), torch.randn(2, 1, 4)
    trained = memory(query).context
    attention.eval()
    torch.testing.assert_close(memory(query).context, attention(query, key, key).context)
    attention.train()
    assert not torch.equal(memory(query).context, trained)


def test_samples_are_drawn_in_every_call():
    memory = Attention(Additive(4, 4, 6), Sample()).precompute(torch.randn(2, 5, 4), torch.randn(2, 5, 3))
    query = torch.zeros(2, 1, 4)
    outputs = [memory(query) for _ in range(20)]
    assert len({tuple(output.weights.argmax(-1).flatten().tolist()) for output in outputs}) > 1
    assert all(output.log_prob.shape == (2, 1) for output in outputs)


def test_inference_mode_leaves_nothing_behind():
    attention = Attention(lambda query, key: query @ key.mT)
    memory = attention.precompute(torch.randn(2, 5, 4), torch.randn(2, 5, 3), padding([5, 2]))
    query = torch.randn(2, 1, 4, requires_grad=True)
    with torch.inference_mode():
        memory(query)
    memory(query).context.sum().backward()
    assert query.grad is not None


def test_autocast():
    memory = Attention(Additive(4, 4, 6)).precompute(torch.randn(2, 5, 4), torch.randn(2, 5, 3))
    query = torch.randn(2, 1, 4)
    plain = memory(query).context
    with torch.autocast("cpu", torch.bfloat16):
        assert memory(query).context.shape == plain.shape
    assert torch.equal(memory(query).context, plain)


def test_vmap_after_a_call():
    memory = Attention(Additive(4, 4, 6)).precompute(torch.randn(5, 4), torch.randn(5, 3), dense(torch.ones(5) > 0))
    queries = torch.randn(3, 1, 4)
    rows = [memory(query).context for query in queries]
    together = torch.vmap(lambda query: memory(query).context)(queries)
    torch.testing.assert_close(together, torch.stack(rows))
    torch.testing.assert_close(memory(queries[0]).context, rows[0])


@pytest.mark.parametrize("kv_heads", [4, 2, 1])
def test_heads(kv_heads):
    attention = MultiHead(8, 4, kv_heads)
    source = torch.randn(2, 5, 8)
    memory = attention.precompute(source, mask=padding([5, 2]))
    for _ in range(3):
        query = torch.randn(2, 1, 8)
        theirs = attention(query, source, mask=padding([5, 2]))
        torch.testing.assert_close(memory(query).context, theirs.context)
        torch.testing.assert_close(memory(query).weights, theirs.weights)


def test_reordered_keys_are_validated_again():
    attention, key = Attention(Additive(4, 4, 6)), torch.randn(3, 5, 4)
    memory, query, rows = attention.precompute(key, key, padding([5, 2, 3])), torch.randn(3, 1, 4), torch.tensor([2, 0])
    memory(query)
    theirs = attention(query[:2], key[rows], key[rows], padding([3, 5]))
    torch.testing.assert_close(memory.reorder(rows, padding([3, 5]))(query[:2]).context, theirs.context)


def test_watchers_are_notified_of_every_call():
    attention, calls = Attention(Additive(4, 4, 6)), []
    memory = attention.precompute(torch.randn(2, 5, 4), torch.randn(2, 5, 3))
    memory(torch.randn(2, 1, 4))
    with register_watcher(lambda module, weights: calls.append((module, weights(None)))):
        outputs = [memory(torch.randn(2, 1, 4)) for _ in range(2)]
    memory(torch.randn(2, 1, 4))
    assert [module for module, _ in calls] == [attention] * 2
    for output, (_, weights) in zip(outputs, calls, strict=True):
        torch.testing.assert_close(weights, output.weights)


def test_positions_that_were_set_later_are_noticed():
    """The keys were rotated by the positions of precompute()."""
    for change in (lambda one: setattr(one, "positions", torch.arange(5) * 3), lambda one: one.positions.mul_(3)):
        score = Rotary(positions=torch.arange(5))
        attention, memory, query = MultiHead(8, 2, score=score), torch.randn(1, 5, 8), torch.randn(1, 5, 8)
        fixed = attention.precompute(memory)
        fixed(query)
        change(score)
        with pytest.raises(StaleStateError, match=r"call precompute\(\) again"):
            fixed(query)
        torch.testing.assert_close(attention.precompute(memory)(query).context, attention(query, memory).context)
