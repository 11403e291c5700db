"""torch.func: vmap, grad, jacrev, jacfwd and functional_call over the modules of attention."""

import pytest
import torch
from torch.func import functional_call, grad, jacfwd, jacrev, stack_module_state, vmap

import regard.nn
from regard.attention import Additive, MultiHead, RelativeBias, Rotary, ScaledDot, causal, padding, sparsemax

DIM, LENGTHS = 16, torch.tensor([5, 2, 1])
HIDDEN = torch.arange(5) >= LENGTHS[:, None]


def heads(mask=None, **options):
    attention = MultiHead(DIM, 4, **options)
    return attention, lambda call, x: call(x, x, x, mask).context


def torch_heads(**arguments):
    attention = regard.nn.MultiheadAttention(DIM, 4, batch_first=True)
    return attention, lambda call, x: call(x, x, x, **arguments)[0]


CASES = {
    "default": lambda: heads(),
    "causal": lambda: heads(causal()),
    "padding": lambda: heads(causal() & padding(LENGTHS)),
    "grouped, rotary": lambda: heads(causal(), num_kv_heads=2, score=Rotary()),
    "additive": lambda: heads(score=Additive(4, 4, 5)),
    "relative bias": lambda: heads(score=ScaledDot() + RelativeBias(4)),
    "sparsemax": lambda: heads(normalize=sparsemax),
    "extra keys": lambda: heads(causal(), add_bias_kv=True, add_zero_attn=True),
    "nn": lambda: torch_heads(),
    "nn, padding": lambda: torch_heads(key_padding_mask=HIDDEN, need_weights=False),
}


@pytest.fixture(params=CASES)
def case(request):
    return CASES[request.param]()


def close(actual, expected):
    torch.testing.assert_close(actual.detach(), expected.detach(), rtol=1e-4, atol=1e-4)


def test_transforms_of_the_input(case):
    module, call = case
    xs = torch.randn(4, 3, 5, DIM)
    close(vmap(lambda x: call(module, x))(xs), torch.stack([call(module, x) for x in xs]))
    leaf = xs.clone().requires_grad_()
    (expected,) = torch.autograd.grad(sum(call(module, x).square().sum() for x in leaf), leaf)
    close(vmap(grad(lambda x: call(module, x).square().sum()))(xs), expected)
    jacobian = torch.autograd.functional.jacobian(lambda x: call(module, x), xs[0])
    close(jacrev(lambda x: call(module, x))(xs[0]), jacobian)
    close(jacfwd(lambda x: call(module, x))(xs[0]), jacobian)


def test_gradients_of_each_example(case):
    module, call = case
    parameters, xs = {name: p.detach() for name, p in module.named_parameters()}, torch.randn(4, 3, 5, DIM)

    def loss(parameters, x):
        return call(lambda *args, **options: functional_call(module, parameters, args, options), x).square().sum()

    actual = vmap(grad(loss), (None, 0))(parameters, xs)
    for i, x in enumerate(xs):
        expected = torch.autograd.grad(call(module, x).square().sum(), list(module.parameters()))
        for name, gradient in zip(parameters, expected, strict=True):
            close(actual[name][i], gradient)


def test_an_ensemble():
    modules, x = [MultiHead(DIM, 4) for _ in range(3)], torch.randn(2, 5, DIM)
    parameters, buffers = stack_module_state(modules)
    contexts = vmap(lambda p, b: functional_call(modules[0], (p, b), (x,)).context)(parameters, buffers)
    close(contexts, torch.stack([module(x).context for module in modules]))
