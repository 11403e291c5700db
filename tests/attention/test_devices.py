"""Devices other than the CPU: results agree, and masks and settings follow the query."""

import pytest
import torch

from regard.attention import (
    Alibi,
    Cosine,
    Dot,
    MultiHead,
    Rotary,
    ScaledDot,
    Score,
    around,
    attend,
    causal,
    dense,
    documents,
    padding,
    sparsemax,
    window,
)
from regard.testing.checks import make_inputs
from tests.contract.mechanisms import BATCH, LISTED_NORMALIZERS, LISTED_SCORES, SCORES, kind

pytestmark = pytest.mark.bare

ON_CPU = {  # masks and settings made on the CPU, for queries on another device
    "padding": {"mask": padding([1, 2])},
    "around": {"mask": around(torch.zeros(2, 5), 1)},
    "around one place": {"mask": around(2.0, 1)},
    "documents": {"mask": documents(torch.arange(5), torch.arange(6))},
    "dense": {"mask": dense(torch.ones(5, 6) > 0)},
    "a tensor": {"mask": torch.ones(5, 6) > 0},
    "all of them": {"mask": causal() & padding([1, 2]) & (torch.ones(5, 6) > 0)},
    "strength": {"score": Cosine(torch.ones(5))},
    "factor": {"score": torch.ones(5, 1) * Dot()},
    "one factor": {"score": torch.tensor(2.0) * Dot()},
    "Alibi": {"score": ScaledDot() + Alibi(1)},
    "Rotary": {"score": Rotary(ScaledDot())},
}


@pytest.mark.parametrize("normalize", [None, sparsemax], ids=["softmax", "sparsemax"])
@pytest.mark.parametrize("case", ON_CPU)
def test_masks_and_settings_follow_the_query_to_its_device(case, normalize):
    """The meta device stands for any other: it computes shapes, and rejects CPU tensors."""
    tensors = (torch.empty(2, n, 4, device="meta") for n in (5, 6, 6))
    output = attend(*tensors, **ON_CPU[case], normalize=normalize)
    assert output.context.shape == (2, 5, 4)
    assert output.weights.device.type == "meta"


def devices():
    available = [name for name in ("cuda", "mps") if getattr(torch, name).is_available()]
    return available or ["none"]


@pytest.mark.gpu
@pytest.mark.parametrize("device", devices())
@pytest.mark.parametrize("score", LISTED_SCORES)
def test_other_devices_agree(score, device):
    part = SCORES[score]()
    sample = make_inputs(70, 160, BATCH, dtype=torch.float32).requiring_grad()
    for mask in (None, causal(), padding([160, 5, 0]), window(3, 2), around(torch.arange(70.0), 3)):
        expected = attend(*sample, mask, score=part)
        there = [t.detach().to(device).requires_grad_() for t in sample]
        output = attend(*there, mask, score=part.to(device))
        part.to("cpu")
        torch.testing.assert_close(output.context.cpu(), expected.context, rtol=1e-3, atol=1e-3)
        if expected.context.requires_grad:
            output.context.square().sum().backward()
            assert all(t.grad is None or t.grad.isfinite().all() for t in there)


@pytest.mark.gpu
@pytest.mark.parametrize("device", devices())
@pytest.mark.parametrize("normalize", LISTED_NORMALIZERS)
def test_other_devices_agree_on_normalizers(normalize, device):
    part = LISTED_NORMALIZERS[normalize]()
    part = part.eval() if isinstance(part, torch.nn.Module) else part
    score = SCORES["Epanechnikov" if kind(part) == "kernel" else "ScaledDot"]()
    sample = make_inputs(5, 6, BATCH, dtype=torch.float32)
    for mask in (None, padding([6, 2, 0])):
        expected = attend(*sample, mask, score=score, normalize=part)
        output = attend(*(t.to(device) for t in sample), mask, score=score, normalize=part)
        torch.testing.assert_close(output.context.cpu(), expected.context, rtol=1e-3, atol=1e-3)
        torch.testing.assert_close(output.weights.cpu(), expected.weights, rtol=1e-3, atol=1e-3)


@pytest.mark.gpu
@pytest.mark.parametrize("device", devices())
def test_heads_on_other_devices(device):
    heads = MultiHead(8, 2, dropout=0.1).eval()
    x = torch.randn(2, 5, 8)
    expected = heads(x, mask=causal() & padding([5, 2]))
    output = heads.to(device)(x.to(device), mask=causal() & padding([5, 2]))
    torch.testing.assert_close(output.context.cpu(), expected.context, rtol=1e-3, atol=1e-3)
    assert isinstance(heads.score, Score)
