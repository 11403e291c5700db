"""Replaced normalizers, and their restoration."""

import pytest
import torch
from torch import nn

from regard.attention import (
    Attention,
    Dropout,
    Gaussian,
    LocalP,
    MultiHead,
    ScaledDot,
    causal,
    entmax15,
    kernel_sum,
    softmax,
)
from regard.testing import check_normalizer
from regard.viewing import PermutedWeights, UniformWeights, replace_normalizers, watch


def test_uniform_weights_are_restored():
    heads, x = MultiHead(8, 2), torch.randn(2, 4, 8)
    plain = heads(x, mask=causal()).context
    before = dict(heads.__dict__), list(heads.named_modules()), heads.state_dict().keys()
    with replace_normalizers(heads, UniformWeights), watch(heads) as records:
        assert not torch.equal(heads(x, mask=causal()).context, plain)
    rows = torch.arange(1, 5)[:, None]
    torch.testing.assert_close(records[0].weights, (torch.ones(4, 4).tril() / rows).expand(2, 2, 4, 4))
    assert torch.equal(heads(x, mask=causal()).context, plain)
    assert (dict(heads.__dict__), list(heads.named_modules()), heads.state_dict().keys()) == before


@pytest.mark.parametrize(
    "attention",
    [
        lambda: Attention(),
        lambda: Attention(normalize=entmax15),
        lambda: Attention(normalize=Dropout(softmax, 0.5)).eval(),
        lambda: Attention(Gaussian()),
        lambda: Attention(Gaussian(), kernel_sum) if Gaussian().output_kind == "kernel" else Attention(Gaussian()),
        lambda: LocalP(ScaledDot(), 4, 8, radius=2),
    ],
)
@pytest.mark.parametrize("change", [UniformWeights, PermutedWeights])
def test_every_normalizer_can_be_replaced(attention, change):
    attention, x = attention(), torch.randn(2, 5, 4)
    plain = attention(x, x, x).context
    before = attention.__dict__.get("normalize", "none"), attention._modules.get("normalize")
    with replace_normalizers(attention, change):
        replaced = attention(x, x, x).context
    assert torch.isfinite(replaced).all()
    assert not torch.equal(replaced, plain)
    assert torch.equal(attention(x, x, x).context, plain)
    assert (attention.__dict__.get("normalize", "none"), attention._modules.get("normalize")) == before


def test_permuted_weights_keep_their_values():
    scores = torch.randn(3, 4, 6)
    scores[0, :, 4:] = scores[1] = -torch.inf
    weights, generator = softmax(scores), torch.Generator().manual_seed(0)
    permuted = PermutedWeights(softmax, generator)(scores)
    torch.testing.assert_close(permuted.sort().values, weights.sort().values)
    assert not permuted[0, :, 4:].any()
    assert not permuted[1].any()
    assert not torch.equal(permuted, weights)
    again = PermutedWeights(softmax, torch.Generator().manual_seed(0))(scores)
    assert torch.equal(permuted, again)
    samples = torch.stack([PermutedWeights(softmax, generator)(scores[2, :1]) for _ in range(400)])
    torch.testing.assert_close(samples.mean(0), torch.full((1, 6), 1 / 6), atol=0.05, rtol=0)


@pytest.mark.parametrize("normalize", [UniformWeights(), PermutedWeights(softmax)])
def test_masked_keys_have_weight_0(normalize):
    check_normalizer(normalize)


def test_selected_layers():
    model = nn.Sequential(Attention(), Attention(normalize=entmax15))
    with replace_normalizers(model, UniformWeights, layers=1):
        assert isinstance(model[1].normalize, UniformWeights)
        assert model[0].normalize is None
    assert model[1].normalize is entmax15
    with (
        pytest.raises(ValueError, match="no attention modules of regard"),
        replace_normalizers(nn.Linear(2, 2), UniformWeights),
    ):
        pass


def test_normalizers_are_restored_after_an_error():
    attention = Attention()
    with pytest.raises(RuntimeError, match="boom"), replace_normalizers(attention, UniformWeights):
        raise RuntimeError("boom")
    assert attention.normalize is None
