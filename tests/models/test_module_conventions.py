"""PyTorch's conventions, for every public module of regard: device=, dtype=, reset_parameters(), repr, copies."""

import copy
import importlib
import inspect
import pickle
import pkgutil

import pytest
import torch
from torch import nn

import regard
from regard import attention as a
from regard import models
from regard.attention.module import ResettableModule
from tests.models.builders import BASE_CLASSES, BUILD, WITHOUT_OWN_PARAMETERS, attention, seq2seq

PARAMETRIC = [name for name, build in BUILD.items() if any(True for _ in build().parameters())]


def public_modules():
    for info in pkgutil.walk_packages(regard.__path__, "regard."):
        if not any(part.startswith("_") for part in info.name.split(".")):
            module = importlib.import_module(info.name)
            for value in (getattr(module, name) for name in getattr(module, "__all__", ())):
                if inspect.isclass(value) and issubclass(value, nn.Module):
                    yield value


def state_of(module):
    return {**dict(module.named_parameters(remove_duplicate=False)), **dict(module.named_buffers())}


def assert_equal_states(actual, expected):
    actual, expected = state_of(actual), state_of(expected)
    assert actual.keys() == expected.keys()
    for key, tensor in actual.items():
        assert tensor.dtype == expected[key].dtype, key
        assert torch.equal(tensor, expected[key]), key


def test_every_public_module_is_tested_here():
    tested = {type(build()) for build in BUILD.values()}
    assert set(public_modules()) - tested - BASE_CLASSES == set()
    assert not tested & BASE_CLASSES


@pytest.mark.parametrize("name", BUILD)
def test_reset_parameters_equals_construction(name):
    torch.manual_seed(3)
    expected = BUILD[name]()
    next_number = torch.rand(())
    with torch.device("meta"):
        module = BUILD[name]()
    assert isinstance(module, ResettableModule) or callable(module.reset_parameters)
    assert all(tensor.is_meta for tensor in state_of(module).values())
    module.to_empty(device="cpu")
    for tensor in state_of(module).values():
        tensor.detach().fill_(7)
    torch.manual_seed(3)
    module.reset_parameters()
    assert torch.rand(()) == next_number
    assert_equal_states(module, expected)


@pytest.mark.parametrize("name", BUILD)
def test_resetting_again_keeps_tied_parameters_tied(name):
    module = BUILD[name]()
    before = {key: id(tensor) for key, tensor in module.named_parameters(remove_duplicate=False)}
    torch.manual_seed(3)
    module.reset_parameters()
    assert {key: id(tensor) for key, tensor in module.named_parameters(remove_duplicate=False)} == before
    torch.manual_seed(3)
    assert_equal_states(module, BUILD[name]())


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", PARAMETRIC)
def test_device_and_dtype(name, dtype):
    tensors = state_of(BUILD[name](device="meta", dtype=dtype))
    assert all(tensor.is_meta for tensor in tensors.values())
    assert {tensor.dtype for tensor in tensors.values() if tensor.is_floating_point()} == {dtype}


@pytest.mark.parametrize("name", PARAMETRIC)
def test_device_and_dtype_are_keyword_only(name):
    cls = type(BUILD[name]())
    parameters = inspect.signature(cls).parameters
    if issubclass(cls, nn.MultiheadAttention):  # in place of PyTorch's: its signature
        assert list(parameters) == list(inspect.signature(nn.MultiheadAttention).parameters)
        return
    for argument in ("device", "dtype") if cls not in WITHOUT_OWN_PARAMETERS else ():
        assert parameters[argument].kind is inspect.Parameter.KEYWORD_ONLY
        assert parameters[argument].default is None


@pytest.mark.parametrize("name", BUILD)
def test_copies(name):
    module = BUILD[name]().eval()
    for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert_equal_states(other, module)
        assert repr(other) == repr(module)
        shared = {id(tensor) for tensor in state_of(module).values()}
        assert not shared & {id(tensor) for tensor in state_of(other).values()}
        tied = len({id(tensor) for tensor in state_of(module).values()})
        assert len({id(tensor) for tensor in state_of(other).values()}) == tied


@pytest.mark.parametrize("name", BUILD)
def test_repr_shows_settings(name):
    """A module without submodules shows what it was constructed with, one with submodules shows those."""
    module = BUILD[name]()
    parameters = inspect.signature(type(module)).parameters
    settings = set(parameters) - {"device", "dtype", "generator", "args", "kwargs"}
    has_parts = any(not isinstance(part, a.Dot) for part in module.children())
    assert module.extra_repr() or has_parts or not settings


MODELS = {
    "Transformer": lambda model, source, lengths, target: (source, lengths, target),
    "RNNSeq2Seq": lambda model, source, lengths, target: (source, lengths, target),
    "CausalLM": lambda model, source, lengths, target: (target,),
    "MaskedLM": lambda model, source, lengths, target: (source, lengths),
    "ShowAttendTell": lambda model, source, lengths, target: (torch.rand(2, 9, 8), target),
}


@pytest.mark.parametrize("name", MODELS)
def test_forward_returns_logits_and_forward_hidden_the_input_of_the_head(name):
    model = BUILD[name]().eval()
    source, target = torch.randint(4, 11, (2, 5)), torch.randint(4, 11, (2, 7))
    arguments = MODELS[name](model, source, torch.tensor([5, 3]), target)
    logits, hidden = model(*arguments), model.forward_hidden(*arguments)
    assert logits.shape[-1] == model.lm_head.out_features
    assert hidden.shape[-1] == model.lm_head.in_features
    assert torch.equal(logits, model.lm_head(hidden))


def test_attention_of_another_dtype_is_left_alone():
    model = models.RNNSeq2Seq(11, 13, attention(), embed_dim=8, hidden_dim=16, dtype=torch.float64)
    assert model.attention.score.key_proj.weight.dtype == torch.float32
    assert model.bridge.weight.dtype == torch.float64


def test_tied_parameters_stay_tied_in_a_copy():
    model = copy.deepcopy(seq2seq(tie_embeddings=True))
    assert model.lm_head.weight is model.tgt_embed.weight


def test_learned_parameters_return_to_their_initial_values():
    widths = torch.tensor([0.5, 2.0, 3.0])
    score, cosine = a.Gaussian(widths, learned=True), a.Cosine(3.0, learned=True)
    with torch.no_grad():
        score.log_width.add_(1)
        cosine.strength.add_(1)
    score.reset_parameters()
    cosine.reset_parameters()
    torch.testing.assert_close(score.width, widths)
    assert cosine.strength.item() == 3.0
