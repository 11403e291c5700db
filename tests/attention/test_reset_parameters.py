"""device, dtype and reset_parameters of the modules, as in PyTorch."""

import inspect

import pytest
import torch

from regard.attention import (
    Additive,
    Alibi,
    Attention,
    AttentionPool,
    Bilinear,
    Concat,
    Cosine,
    Energy,
    Gaussian,
    Learned,
    LocalM,
    LocalP,
    Location,
    MultiHead,
    RelativeBias,
    ScaledDot,
)

BUILDERS = {
    "Additive": lambda **options: Additive(4, 6, 8, **options),
    "Additive without a query": lambda **options: Additive(None, 6, 8, **options),
    "Bilinear": lambda **options: Bilinear(4, 6, **options),
    "Concat": lambda **options: Concat(4, 6, 8, num_layers=3, **options),
    "Cosine": lambda **options: Cosine(2.0, learned=True, **options),
    "Energy": lambda **options: Energy(4, 6, **options),
    "Gaussian": lambda **options: Gaussian(0.5, learned=True, **options),
    "Learned": lambda **options: Learned(10, 4, **options),
    "LocalP": lambda **options: LocalP(Additive(4, 6, 5, **options), 4, 8, 2, **options),
    "Location": lambda **options: Location(4, 9, **options),
    "MultiHead": lambda **options: MultiHead(12, 6, 2, **options),
    "RelativeBias": lambda **options: RelativeBias(3, **options),
    "Attention": lambda **options: Attention(Bilinear(4, 6, **options)),
    "LocalM": lambda **options: LocalM(Bilinear(4, 6, **options), 2),
    "MultiHead with a score": lambda **options: MultiHead(12, 3, score=Additive(4, 4, 5, **options), **options),
    "AttentionPool": lambda **options: AttentionPool(Attention(Bilinear(6, 8, **options)), 6, **options),
}


@pytest.mark.parametrize("name", BUILDERS)
def test_reset_parameters_equals_the_constructor(name):
    torch.manual_seed(3)
    expected = BUILDERS[name]()
    state = torch.get_rng_state()
    with torch.device("meta"):
        module = BUILDERS[name]()
    assert all(parameter.is_meta for parameter in module.parameters())
    module.to_empty(device="cpu")
    for parameter in module.parameters():
        torch.nn.init.constant_(parameter, torch.nan)
    torch.manual_seed(3)
    module.reset_parameters()
    assert torch.equal(torch.get_rng_state(), state)
    assert dict(module.named_parameters()).keys() == dict(expected.named_parameters()).keys()
    for parameter, other in zip(module.parameters(), expected.parameters(), strict=True):
        assert torch.equal(parameter, other)


def test_reset_parameters_fills_the_slopes_of_alibi():
    with torch.device("meta"):
        bias = Alibi(6)
    bias.to_empty(device="cpu").reset_parameters()
    assert torch.equal(bias.slopes, Alibi(6).slopes)


@pytest.mark.parametrize("name", BUILDERS)
def test_device_and_dtype(name):
    module = BUILDERS[name](device="meta", dtype=torch.float64)
    assert all(p.is_meta and p.dtype == torch.float64 for p in module.parameters())
    assert any(True for _ in module.parameters())


def test_device_and_dtype_are_keyword_only():
    for cls in (Additive, Bilinear, Concat, Cosine, Energy, Gaussian, Learned, LocalP, Location, MultiHead):
        parameters = inspect.signature(cls).parameters
        for name in ("device", "dtype"):
            assert parameters[name].kind is inspect.Parameter.KEYWORD_ONLY
            assert parameters[name].default is None


def test_learned_parameters_return_to_their_initial_values():
    widths = torch.tensor([0.5, 2.0, 3.0])
    score, cosine = Gaussian(widths, learned=True), Cosine(3.0, learned=True)
    with torch.no_grad():
        score.log_width.add_(1)
        cosine.strength.add_(1)
    score.reset_parameters()
    cosine.reset_parameters()
    torch.testing.assert_close(score.width, widths)
    assert cosine.strength.item() == 3.0


def test_scaled_dot_has_nothing_to_reset():
    attention = Attention(ScaledDot())
    attention.reset_parameters()
    assert not list(attention.parameters())
