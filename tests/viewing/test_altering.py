"""Other weights for a while, and then everything as it was."""

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


def test_uniform_weights_and_back():
    heads, x = MultiHead(8, 2), torch.randn(2, 4, 8)
    plain = heads(x, mask=causal()).context
    before = dict(heads.__dict__), list(heads.named_modules()), heads.state_dict().keys()
    with replace_normalizers(heads, UniformWeights), watch(heads) as seen:
        assert not torch.equal(heads(x, mask=causal()).context, plain)
    rows = torch.arange(1, 5)[:, None]
    torch.testing.assert_close(seen[0].weights, (torch.ones(4, 4).tril() / rows).expand(2, 2, 4, 4))
    assert torch.equal(heads(x, mask=causal()).context, plain)
    assert (dict(heads.__dict__), list(heads.named_modules()), heads.state_dict().keys()) == before


@pytest.mark.parametrize(
    "attention",
    [
        lambda: Attention(),
        lambda: Attention(normalize=entmax15),
        lambda: Attention(normalize=Dropout(softmax, 0.5)).eval(),
        lambda: Attention(Gaussian()),
        lambda: (
            Attention(Gaussian(), kernel_sum) if Gaussian().output_kind == "kernel" else Attention(Gaussian())
        ),
        lambda: LocalP(ScaledDot(), 4, 8, radius=2),
    ],
)
@pytest.mark.parametrize("change", [UniformWeights, PermutedWeights])
def test_every_normalizer_can_be_altered(attention, change):
    attention, x = attention(), torch.randn(2, 5, 4)
    plain = attention(x, x, x).context
    had = attention.__dict__.get("normalize", "none"), attention._modules.get("normalize")
    with replace_normalizers(attention, change):
        changed = attention(x, x, x).context
    assert torch.isfinite(changed).all()
    assert not torch.equal(changed, plain)
    assert torch.equal(attention(x, x, x).context, plain)
    assert (attention.__dict__.get("normalize", "none"), attention._modules.get("normalize")) == had


def test_permuted_weights_are_the_same_weights_at_other_keys():
    scores = torch.randn(3, 4, 6)
    scores[0, :, 4:] = scores[1] = -torch.inf
    weights, generator = softmax(scores), torch.Generator().manual_seed(0)
    dealt = PermutedWeights(softmax, generator)(scores)
    torch.testing.assert_close(dealt.sort().values, weights.sort().values)
    assert not dealt[0, :, 4:].any()
    assert not dealt[1].any()
    assert not torch.equal(dealt, weights)
    again = PermutedWeights(softmax, torch.Generator().manual_seed(0))(scores)
    assert torch.equal(dealt, again)
    many = torch.stack([PermutedWeights(softmax, generator)(scores[2, :1]) for _ in range(400)])
    torch.testing.assert_close(many.mean(0), torch.full((1, 6), 1 / 6), atol=0.05, rtol=0)


@pytest.mark.parametrize("normalize", [UniformWeights(), PermutedWeights(softmax)])
def test_they_keep_the_law_of_hidden_keys(normalize):
    check_normalizer(normalize)


def test_only_the_layers_named():
    model = nn.Sequential(Attention(), Attention(normalize=entmax15))
    with replace_normalizers(model, UniformWeights, layers=1):
        assert isinstance(model[1].normalize, UniformWeights)
        assert model[0].normalize is None
    assert model[1].normalize is entmax15
    with (
        pytest.raises(ValueError, match="no attention of regard's"),
        replace_normalizers(nn.Linear(2, 2), UniformWeights),
    ):
        pass


def test_an_error_inside_changes_nothing():
    attention = Attention()
    with pytest.raises(RuntimeError, match="boom"), replace_normalizers(attention, UniformWeights):
        raise RuntimeError("boom")
    assert attention.normalize is None
