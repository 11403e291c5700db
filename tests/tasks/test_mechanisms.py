"""Mechanisms from names: what the catalogue lists can be trained by its name, or is refused in one sentence."""

import pytest
import torch

from regard import attention as a
from regard.catalogue import MECHANISMS
from regard.data.pair_batches import PairBatch
from regard.errors import ConfigError
from regard.tasks import NextTokenLoss, get_recipe, get_task, make_config
from regard.tasks.mechanisms import NORMALIZERS, SCORES, build_normalizer, build_score, training_warnings
from regard.tasks.translation.task import build_loss, build_model
from regard.training.trainer import Objective

BATCH = PairBatch.from_pairs([([5, 6, 7], [4, 5]), ([8], [6, 7, 8]), ([4, 4, 9, 5, 6], [9])])
WORDS = 11


def names_of(kind):
    """All names of what the recipes know: the catalogue's and the aliases."""
    return [
        name
        for entry in MECHANISMS
        if entry.kind == kind and entry.name in {**SCORES, **NORMALIZERS}
        for name in (entry.name, *entry.aliases)
    ]


def train_one_step(*words):
    torch.manual_seed(0)
    settings = make_config("reverse", ["hidden_dim=8", "embed_dim=6", "dropout=0.1", *words])
    get_task("translation").validate(settings, get_recipe("reverse").load_data(settings))  # nothing is refused
    objective = Objective(build_model(settings, WORDS, WORDS), build_loss(settings))
    before = {name: p.detach().clone() for name, p in objective.named_parameters()}
    optimizer = torch.optim.SGD(objective.parameters(), lr=0.1)
    loss = objective(BATCH)
    loss.total.backward()
    assert loss.total.isfinite()
    idle = [name for name, p in objective.named_parameters() if p.grad is None]
    assert all(p.grad.isfinite().all() for p in objective.parameters() if p.grad is not None)
    optimizer.step()
    assert any(not torch.equal(before[name], p) for name, p in objective.named_parameters())
    objective.eval()
    assert objective(BATCH).total.isfinite()
    return idle


def test_all_mechanisms_of_the_catalogue_can_be_trained():
    """A score or normalizer that is listed can be named, save those that are parts of others."""
    listed = {entry.name for entry in MECHANISMS if entry.kind == "score"}
    assert listed - set(SCORES) == {"SoftCap"}
    listed = {entry.name for entry in MECHANISMS if entry.kind == "normalizer"}
    assert listed - set(NORMALIZERS) == {"Dropout", "WithSink", "GaussianWindow"}


@pytest.mark.parametrize("name", names_of("score"))
def test_every_score_by_every_name(name):
    kernel = name.lower() in ("boxcar", "uniform kernel", "epanechnikov", "parabolic kernel")
    width = "(4)" if kernel else ""
    assert train_one_step(f"score={name}{width}") == []


@pytest.mark.parametrize("name", names_of("normalizer"))
def test_every_normalizer_by_every_name(name):
    idle = train_one_step(*(["score=epanechnikov(4)"] if name == "kernel_sum" else []), f"normalize={name}")
    if name not in ("hardmax", "argmax", "hard"):  # its gradient is 0 by definition
        assert idle == []


@pytest.mark.parametrize(
    "decoder", [["decoder_type=bahdanau"], ["decoder_type=luong"], ["decoder_type=luong", "input_feeding=on"]]
)
@pytest.mark.parametrize("scope", ["local-m", "local-p", "none", "global"])
@pytest.mark.parametrize("normalize", ["softmax", "sparsemax", "topk(2)", "sample"])
def test_every_scope(decoder, scope, normalize):
    assert train_one_step(*decoder, f"attention_scope={scope}", f"normalize={normalize}", "window_radius=1") == []


def test_numbers_in_parentheses_are_passed_on():
    assert build_normalizer("topk(3)").k == 3
    assert build_normalizer("top-k ( 7 )").k == 7
    assert build_score("location(9)", 4, 4, 4).max_keys == 9
    assert build_score("concat(2)", 4, 4, 4)(torch.zeros(1, 1, 4), torch.zeros(1, 2, 4)).shape == (1, 1, 2)
    assert isinstance(build_score("luong general", 4, 6, 8), a.Bilinear)
    assert build_normalizer(None) is None


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["score=dott"], "invalid value 'dott' for score: did you mean dot"),
        (["score=adative"], "did you mean additive"),
        (["score=generl"], "did you mean general"),
        (["normalize=spasemax"], "invalid value 'spasemax' for normalize: did you mean sparsemax"),
        (["normalize=topp(3)"], "did you mean top"),
        (["score=softmax"], "for score: expected one of Constant, Dot"),
        (["normalize=dot"], "for normalize: expected one of softmax"),
        (["normalize=dropout"], "for normalize: expected one of softmax"),
        (["normalize=topk()"], "a name with a number"),
        (["score=(3)"], "a name with a number"),
        (["score=dot", "encoder_hidden_dim=3"], "8 numbers and the keys 6"),
        (["score=dot", "hidden_dim=9"], "9 numbers and the keys 8"),
    ],
)
def test_refusals(words, part):
    with pytest.raises(ConfigError) as caught:
        build_model(make_config("reverse", ["hidden_dim=8", *words]), WORDS, WORDS)
    assert part in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.bare
@pytest.mark.parametrize("words", [["score=boxcar", "normalize=softmax"], ["score=dot", "normalize=kernel_sum"]])
def test_kernel_scores_with_kernel_sum(words):
    with pytest.raises(ValueError, match="kernel"):
        NextTokenLoss()(build_model(make_config("reverse", ["hidden_dim=8", *words]), WORDS, WORDS), BATCH)


@pytest.mark.bare
@pytest.mark.parametrize("words", [["score=boxcar", "normalize=softmax"], ["score=dot", "normalize=kernel_sum"]])
def test_kernel_scores_need_kernel_sum(words):
    with pytest.raises(ConfigError):
        build_model(make_config("reverse", ["hidden_dim=8", *words]), WORDS, WORDS)


@pytest.mark.bare
@pytest.mark.parametrize(
    "words", ["topk(1.2.3)", "topk(e)", "topk(-1)", "entmax(0.5)", "topk(1e400)", "temperature(-1)"]
)
def test_invalid_numbers_are_refused(words):
    with pytest.raises(ConfigError):
        build_normalizer(words)


@pytest.mark.bare
@pytest.mark.parametrize("words", ["topk(0)", "temperature(0)", "gumbel(0)", "entmax(0)"])
def test_zero_is_refused(words):
    with pytest.raises(ValueError, match="0"):
        build_normalizer(words)


@pytest.mark.bare
@pytest.mark.parametrize("words", ["topk(2.7)", "softmax(3)", "hardmax(2)"])
def test_numbers_are_not_rounded_or_ignored(words):
    with pytest.raises(ConfigError):
        build_normalizer(words)


@pytest.mark.parametrize("words", [["normalize=hardmax"], ["normalize=argmax", "attention_scope=local-p"]])
def test_hardmax_warns(words):
    (line,) = training_warnings(build_model(make_config("reverse", words), WORDS, WORDS))
    assert "hardmax has no gradient" in line
    assert "sample and straight-through are trained" in line
    for other in ("sample", "straight-through"):
        build_normalizer(other)


@pytest.mark.parametrize(
    "words", [[], ["normalize=sample"], ["normalize=straight-through"], ["normalize=hardmax", "attention_scope=none"]]
)
def test_trained_scores_do_not_warn(words):
    assert training_warnings(build_model(make_config("reverse", words), WORDS, WORDS)) == []
