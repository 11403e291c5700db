"""Input that nobody should give, and somebody will."""

import pytest
import torch

from regard.attention import (
    Additive,
    Alibi,
    Attention,
    Bilinear,
    Boxcar,
    Concat,
    Cosine,
    Dot,
    Dropout,
    Energy,
    Gaussian,
    Gumbel,
    LocalM,
    Location,
    MultiHead,
    Rotary,
    Sample,
    ScaledDot,
    Temperature,
    TopK,
    around,
    attend,
    causal,
    dense,
    documents,
    kernel_sum,
    padding,
    softmax,
    sparsemax,
)
from regard.attention.normalizers import entmax15, hardmax, sigmoid
from regard.testing._world import world
from tests.contract.parts import SCORES

each_score = pytest.mark.parametrize("score", SCORES)
BATCH = (3, 2)

# ---- few, none, many


@each_score
def test_one_key(score):
    w = world(5, 1, BATCH)
    part = SCORES[score]()
    part = part.double() if isinstance(part, torch.nn.Module) else part
    seen = attend(*w, score=part)
    kernel = getattr(part, "gives", "") == "kernel"  # a key out of reach is not seen at all
    assert ((seen.weights == 1) | ((seen.weights == 0) & kernel)).all()
    torch.testing.assert_close(seen.context, seen.weights * w.value)


@each_score
def test_no_keys_and_no_queries_with_masks(score):
    part = SCORES[score]()
    part = part.double() if isinstance(part, torch.nn.Module) else part
    for mask in (causal(), padding([0, 0, 0]), around(2.0, 1), dense(torch.ones(1, 1) > 0)):
        seen = attend(*world(5, 0, BATCH), mask, score=part)
        assert seen.context.shape == (*BATCH, 5, 3)
        assert (seen.context == 0).all()
        assert seen.weights.shape == (*BATCH, 5, 0)
        assert attend(*world(0, 6, BATCH), mask, score=part).context.shape == (*BATCH, 0, 3)


def test_no_batch_entries():
    for score in (ScaledDot(), Gaussian(), Additive(4, 4, 5).double(), Cosine()):
        for mask in (None, causal(), padding(torch.zeros(0, dtype=torch.long))):
            seen = attend(*world(5, 6, (0,)), mask, score=score)
            assert seen.context.shape == (0, 5, 3)
            assert seen.weights.shape == (0, 5, 6)


def test_no_features():
    query, key, value = torch.zeros(2, 3, 0), torch.zeros(2, 4, 0), torch.randn(2, 4, 3)
    for score in (Dot(), ScaledDot(), Cosine(), Gaussian()):
        torch.testing.assert_close(
            attend(query, key, value, score=score).context, value.mean(1, True).expand(2, 3, 3)
        )
    assert attend(torch.zeros(2, 3, 4), torch.zeros(2, 5, 4), torch.zeros(2, 5, 0)).context.shape == (2, 3, 0)


# ---- large and small numbers


@each_score
@pytest.mark.parametrize("size", [1e4, 1e-30], ids=["huge", "tiny"])
def test_extreme_vectors_give_finite_answers(score, size):
    part = SCORES[score]()
    w = world(5, 6, BATCH, dtype=torch.float32)
    query, key = (size * w.query).requires_grad_(), (size * w.key).requires_grad_()
    for mask in (None, padding([6, 2, 0])):
        seen = attend(query, key, w.value, mask, score=part)
        assert seen.context.isfinite().all()
        assert seen.weights.isfinite().all()
        torch.testing.assert_close(seen.context, seen.weights @ w.value, rtol=1e-3, atol=1e-3)
        gradients = (
            torch.autograd.grad(
                seen.context.sum() + seen.weights.square().sum(), (query, key), allow_unused=True
            )
            if seen.context.requires_grad
            else ()
        )
        assert all(g is None or g.isfinite().all() for g in gradients)


@pytest.mark.parametrize("offset", [1000.0, -1000.0])
@pytest.mark.parametrize("size", [5, 64])
def test_additive_with_large_offsets(offset, size):
    """Projections around 1000 apart from each other, on the product path (64) and by the definition (5)."""
    torch.manual_seed(0)
    score = Additive(4, 4, 64)
    query, key, value = torch.randn(2, size, 4), torch.randn(2, size, 4), torch.randn(2, size, 3)
    with torch.no_grad():
        score.W.weight.mul_(20)
        query[:, : size // 2] += offset
        key[..., 0] -= offset
    exact = Additive(4, 4, 64).double()
    exact.load_state_dict({name: tensor.double() for name, tensor in score.state_dict().items()})
    wide = exact.definition(query.double(), key.double())
    # what float32 projections can be asked for: their own rounding, not more
    a, b = score.W(query).double(), score.U(key).double()
    want = torch.tanh(a.unsqueeze(-2) + b.unsqueeze(-3)) @ score.v.double()
    got = score(query, key)
    torch.testing.assert_close(got.double(), want, rtol=1e-4, atol=1e-4)
    assert wide.isfinite().all()
    seen = attend(query, key, value, score=score)
    torch.testing.assert_close(seen.context.double(), want.softmax(-1) @ value.double(), rtol=1e-3, atol=1e-3)


def test_sums_over_many_keys_are_sums_in_half_precision():
    """4096 equal weights of 1/4096: added up in bfloat16 they would stop growing."""
    value = torch.ones(4096, 1, dtype=torch.bfloat16)
    key, query = torch.zeros(4096, 4, dtype=torch.bfloat16), torch.zeros(1, 4, dtype=torch.bfloat16)
    for score in (ScaledDot(), Gaussian(), Cosine()):
        for normalize in (None, Temperature(2.0), sparsemax, entmax15):
            context = attend(query, key, value, score=score, normalize=normalize).context
            assert context.item() == pytest.approx(1.0, abs=0.01)


def test_infinite_scores_of_the_users_own():
    """A score may hide keys by itself."""

    def only_even(query, key):
        scores = query @ key.mT
        return scores.masked_fill(torch.arange(key.shape[-2]) % 2 == 1, -torch.inf)

    w = world(5, 6, (2,))
    for normalize in (softmax, sparsemax, hardmax, sigmoid, TopK(2)):
        weights = attend(*w, score=only_even, normalize=normalize).weights
        assert (weights[..., 1::2] == 0).all()
        assert (weights.sum(-1) > 0).all()


# ---- zero vectors


def test_cosine_of_zero_vectors():
    query, key = torch.randn(2, 3, 4), torch.randn(2, 5, 4)
    query[:, 0], key[:, 1] = 0, 0
    query.requires_grad_(), key.requires_grad_()
    scores = Cosine(3.0)(query, key)
    assert (scores[:, 0] == 0).all()
    assert (scores[:, :, 1] == 0).all()
    seen = attend(query, key, key, score=Cosine(3.0))
    (seen.context.square().sum() + seen.weights.square().sum() + scores.square().sum()).backward()
    assert query.grad.isfinite().all()
    assert key.grad.isfinite().all()
    assert (query.grad[:, 0] == 0).all()


def test_distance_zero():
    key = torch.randn(2, 5, 4, requires_grad=True)
    for score in (Gaussian(), Gaussian(0.3, learned=True), Boxcar(1.0)):
        seen = attend(key, key, key, score=score)
        (seen.context.square().sum() + seen.weights.square().sum()).backward()
        assert key.grad.isfinite().all()


# ---- layouts of memory


def awkward(tensor):
    """The same numbers in four uncomfortable layouts."""
    yield "transposed", tensor.mT.contiguous().mT
    yield (
        "every other one",
        torch.stack([tensor, tensor.new_full(tensor.shape, 9.0)], -1).flatten(-2)[..., ::2],
    )
    yield "reversed twice", tensor.flip(-2).flip(-2)
    yield "batch last", tensor.movedim(0, -1).contiguous().movedim(-1, 0)


@each_score
def test_layouts(score):
    w = world(5, 6, BATCH)
    part = SCORES[score]()
    part = part.double() if isinstance(part, torch.nn.Module) else part
    for mask in (None, padding([6, 2, 0])):
        want = attend(*w, mask, score=part)
        for (_, query), (_, key), (_, value) in zip(*(awkward(t) for t in w), strict=True):
            seen = attend(query, key, value, mask, score=part)
            torch.testing.assert_close(seen.context, want.context)
            torch.testing.assert_close(seen.weights, want.weights)


@each_score
def test_expanded_tensors(score):
    w = world(5, 6, BATCH)
    part = SCORES[score]()
    part = part.double() if isinstance(part, torch.nn.Module) else part
    query, key, value = (t[:1, :1].expand(*BATCH, -1, -1) for t in w)
    key = key[..., :1, :].expand(-1, -1, 6, -1)
    mask = torch.ones(1, 1, dtype=torch.bool).expand(5, 6)
    seen = attend(query, key, value, mask, score=part)
    want = attend(*(t.contiguous() for t in (query, key, value)), mask.contiguous(), score=part)
    torch.testing.assert_close(seen.context, want.context)
    torch.testing.assert_close(seen.weights, want.weights)


def test_one_tensor_as_all_three():
    x = torch.randn(2, 5, 4, requires_grad=True)
    (gradient,) = torch.autograd.grad(attend(x, x, x, causal()).context.square().sum(), x)
    y = x.detach().clone().requires_grad_()
    (want,) = torch.autograd.grad(attend(y, y.clone(), y.clone(), causal()).context.square().sum(), y)
    torch.testing.assert_close(gradient, want)


# ---- what does not fit, in one sentence

Q, K, V = torch.zeros(2, 5, 4), torch.zeros(2, 6, 4), torch.zeros(2, 6, 3)
WRONG = {
    "keys and values": (lambda: attend(Q, K, V[:, :5]), r"6 keys and 5 values.*\(2, 6, 4\).*\(2, 5, 3\)"),
    "batch": (
        lambda: attend(Q, K[:1].expand(3, 6, 4), V),
        r"broadcast: query \(2, 5, 4\), key \(3, 6, 4\), value",
    ),
    "size": (lambda: attend(Q[..., :3], K, V), r"ScaledDot.*query \(2, 5, 3\) and key \(2, 6, 4\)"),
    "Cosine": (lambda: attend(Q[..., :3], K, V, score=Cosine()), r"Cosine.*\(2, 5, 3\).*\(2, 6, 4\)"),
    "Gaussian": (lambda: attend(Q[..., :3], K, V, score=Gaussian()), r"Gaussian.*\(2, 5, 3\).*\(2, 6, 4\)"),
    "widths": (
        lambda: attend(Q, K, V, score=Gaussian(torch.ones(3))),
        r"width for each of 3 features.*\(2, 5, 4\)",
    ),
    "Boxcar": (lambda: attend(Q[..., :3], K, V, score=Boxcar(1.0)), r"Boxcar.*\(2, 5, 3\)"),
    "Bilinear": (
        lambda: attend(Q, K, V, score=Bilinear(3, 4)),
        r"Bilinear was made for query_dim=3, got query \(2, 5, 4\)",
    ),
    "Energy": (
        lambda: attend(Q, K, V, score=Energy(4, 3)),
        r"Energy was made for key_dim=3, got key \(2, 6, 4\)",
    ),
    "Additive": (
        lambda: attend(Q, K, V, score=Additive(4, 3, 5)),
        r"Additive was made for key_dim=3, got key",
    ),
    "Concat": (lambda: attend(Q, K, V, score=Concat(3, 4, 5)), r"Concat was made for query_dim=3, got query"),
    "Location": (
        lambda: attend(Q, K, V, score=Location(3, 9)),
        r"Location was made for query_dim=3, got query",
    ),
    "Rotary": (lambda: attend(Q, K, V, score=Rotary(Bilinear(3, 4))), r"Bilinear was made for query_dim=3"),
    "sum": (lambda: attend(Q, K, V, score=Dot() + Bilinear(3, 4)), r"Bilinear was made for query_dim=3"),
    "scaled": (lambda: attend(Q, K, V, score=2 * Bilinear(3, 4)), r"Bilinear was made for query_dim=3"),
    "strength": (
        lambda: attend(Q, K, V, score=Cosine(torch.ones(3))),
        r"strength.*\(3,\).*query \(2, 5, 4\)",
    ),
    "one axis": (lambda: attend(Q[0, 0], K, V), r"query must be \(\*batch, queries, dim\), got \(4,\)"),
    "one axis of keys": (lambda: attend(Q, K[0, 0], V), r"key must be \(\*batch, keys, dim\), got \(4,\)"),
    "kernel and softmax": (
        lambda: attend(Q, K, V, score=Boxcar(1.0), normalize=softmax),
        "Boxcar gives kernel values, but softmax shares out logits",
    ),
    "logits and kernel_sum": (
        lambda: attend(Q, K, V, normalize=kernel_sum),
        "ScaledDot gives logits, but kernel_sum shares out kernel values",
    ),
    "wrapped": (
        lambda: attend(Q, K, V, score=Boxcar(1.0), normalize=Dropout(softmax, 0.1)),
        "Boxcar gives kernel values, but Dropout",
    ),
    "over, query": (
        lambda: Attention(Additive(4, 4, 5)).over(K, V)(Q[..., :3]),
        r"query_dim=4, got query \(2, 5, 3\)",
    ),
    "over, size": (
        lambda: Attention(Cosine()).over(K, V)(Q[..., :3]),
        r"Cosine.*query \(2, 5, 3\) and key \(2, 6, 4\)",
    ),
    "over, key": (lambda: Attention(Additive(4, 3, 5)).over(K, V), r"Additive cannot take key \(2, 6, 4\)"),
    "zero width": (lambda: Gaussian(0.0), "Gaussian: width must be above 0"),
    "widths in a table": (lambda: Gaussian(torch.ones(2, 2)), "Gaussian: width must be"),
    "activation": (lambda: Additive(4, 4, 5, activation="gelu"), "must be one of tanh, .* got 'gelu'"),
    "depth": (lambda: Concat(4, 4, 5, depth=0), "depth must be at least 1, got 0"),
}
WRONG_KINDS = {
    "dtypes": (
        lambda: attend(Q, K.double(), V),
        "one dtype outside of autocast, got query torch.float32, key torch.float64",
    ),
    "whole numbers": (lambda: attend(Q.long(), K.long(), V.long()), "floating point, got query torch.int64"),
    "bool": (lambda: attend(Q > 0, K, V), "floating point, got query torch.bool"),
    "list": (lambda: attend([[1.0]], K, V), "query must be a tensor, got list"),
    "no key": (lambda: attend(Q, None, V), "key must be a tensor, got NoneType"),
    "no query and no key": (lambda: attend(None, None, V), "key must be a tensor, got NoneType"),
    "no query, list": (lambda: attend(None, [1.0], V), "key must be a tensor, got list"),
    "float mask": (
        lambda: attend(Q, K, V, torch.zeros(5, 6)),
        "a mask is a bool tensor, True where .* got torch.float32",
    ),
    "integer mask": (
        lambda: attend(Q, K, V, torch.ones(5, 6).int()),
        "a mask is a bool tensor.*got torch.int32",
    ),
    "mask in a list": (lambda: attend(Q, K, V, [[True]]), "a mask is a bool tensor.*got list"),
    "lengths for a mask": (lambda: attend(Q, K, V, torch.tensor([1, 2])), r"padding\(lengths\) for lengths"),
    "mask function": (lambda: attend(Q, K, V, causal), "got function"),
    "score in words": (lambda: attend(Q, K, V, score="dot"), "score must be a function or module.*got 'dot'"),
    "no score": (lambda: attend(Q, K, V, score=None), "score must be a function or module.*got None"),
    "normalizer in words": (
        lambda: attend(Q, K, V, normalize="softmax"),
        "normalize must be .*got 'softmax'",
    ),
    "class with arguments": (
        lambda: attend(Q, K, V, score=Bilinear),
        r"score must be made first: write Bilinear\(\.\.\.\)",
    ),
    "normalizer class": (
        lambda: attend(Q, K, V, normalize=Temperature),
        r"normalize must be made first: write Temp",
    ),
}


@pytest.mark.bare
@pytest.mark.parametrize("case", WRONG)
def test_what_does_not_fit_is_refused_in_one_sentence(case):
    wrong, words = WRONG[case]
    with pytest.raises(ValueError, match=words) as error:
        wrong()
    assert "\n" not in str(error.value)


@pytest.mark.bare
@pytest.mark.parametrize("case", WRONG_KINDS)
def test_what_is_of_another_kind_is_refused_in_one_sentence(case):
    wrong, words = WRONG_KINDS[case]
    with pytest.raises(TypeError, match=words) as error:
        wrong()
    assert "\n" not in str(error.value)


def test_a_class_that_needs_nothing_may_be_given_as_it_is():
    w = world(5, 6, (2,))
    assert torch.equal(attend(*w, score=Dot).context, attend(*w, score=Dot()).context)
    assert Attention(Dot)(*w).context.isfinite().all()


# ---- changed after the call

Step = {
    "query": lambda s: s.query.add_(1),
    "part of the query": lambda s: s.query[0, 0].zero_(),
    "key": lambda s: s.key.mul_(2),
    "parameter": lambda s: torch.optim.SGD(s.score.parameters(), lr=1.0).step(),
    "loaded": lambda s: s.score.load_state_dict({"weight": torch.eye(4, dtype=torch.float64)}),
    "replaced parameter": lambda s: setattr(s.score, "weight", torch.nn.Parameter(torch.eye(4).double())),
    "lengths": lambda s: s.lengths.fill_(1),
    "mask": lambda s: s.seen.fill_(True),
    "centre": lambda s: s.centre.add_(1),
    "documents": lambda s: s.ids.zero_(),
    "temperature": lambda s: setattr(s.normalize, "t", 0.1),
    "learned temperature": lambda s: s.learned.t.detach().add_(1),
}


class Scene:
    """Something of everything, all of it within reach of a careless hand."""

    def __init__(self):
        torch.manual_seed(0)
        self.query, self.key, self.value = world(5, 6, (2,))
        self.score = Bilinear(4, 4).double()
        self.score.weight.grad = torch.ones_like(self.score.weight)
        self.lengths, self.centre = torch.tensor([6, 4]), torch.full((2, 5), 2.0)
        self.seen, self.ids = torch.rand(5, 6) < 0.9, torch.arange(6) // 4
        self.normalize, self.learned = (
            Temperature(0.7),
            Temperature(torch.nn.Parameter(torch.tensor(0.7).double())),
        )

    def look(self, normalize):
        mask = padding(self.lengths) & around(self.centre, 3) & self.seen & documents(self.ids[:5], self.ids)
        return attend(self.query, self.key, self.value, mask, score=self.score, normalize=normalize)


@pytest.mark.parametrize("change", Step)
def test_changed_since_the_weights_cannot_be_read(change):
    scene = Scene()
    normalize = scene.learned if "learned" in change else scene.normalize
    early, late = scene.look(normalize), scene.look(normalize)
    want = early.weights.detach().clone()
    Step[change](scene)
    with pytest.raises(
        RuntimeError, match=r"can no longer be read.*changed since.*read .weights before"
    ) as error:
        _ = late.weights
    assert "\n" not in str(error.value)
    with pytest.raises(RuntimeError, match="can no longer be read"):
        _ = late.scores
    assert torch.equal(early.weights, want)  # what was read stays read
    assert late.context.isfinite().all()


def test_what_does_not_matter_may_change():
    scene = Scene()
    seen, want = scene.look(scene.normalize), scene.look(scene.normalize).weights
    scene.value.zero_()
    scene.score.weight.grad.zero_()
    scene.score.eval()
    scene.score.requires_grad_(False)
    torch.testing.assert_close(seen.weights, want)


def test_kept_weights_do_not_follow_a_change():
    """Paths that have the weights anyway keep them."""
    w = world(5, 6, (2,))
    seen = attend(*w, normalize=Sample())
    want = seen.weights.clone()
    w.query.zero_()
    assert torch.equal(seen.weights, want)


def test_a_training_loop_that_reads_late_is_told():
    module = MultiHead(8, 2)
    optimizer = torch.optim.Adam(module.parameters())
    x = torch.randn(2, 5, 8)
    seen = module(x)
    early = module(x)
    early_weights = early.weights
    (seen.context.sum() + early_weights.sum()).backward()
    optimizer.step()
    assert torch.equal(early.weights, early_weights)
    # The projections were made before the step; what is compared are they, and they have not changed.
    torch.testing.assert_close(seen.weights, early_weights)
    local = LocalM(Additive(8, 8, 4), 2)
    optimizer = torch.optim.Adam(local.parameters())
    seen = local(x, torch.randn(2, 50, 8), torch.randn(2, 50, 3))
    seen.context.sum().backward()
    optimizer.step()
    with pytest.raises(RuntimeError, match="can no longer be read"):
        _ = seen.weights


def test_autocast_is_that_of_the_call():
    x = torch.randn(2, 5, 4)
    for score in (Bilinear(4, 4), Additive(4, 4, 5), ScaledDot(), Concat(4, 4, 5)):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            seen, other = (attend(x.bfloat16(), x.bfloat16(), x.bfloat16(), score=score) for _ in range(2))
            inside = seen.weights
        assert torch.equal(other.weights, inside)
        plain = attend(x, x, x, score=score)
        want = attend(x, x, x, score=score).weights
        with torch.autocast("cpu", dtype=torch.bfloat16):
            torch.testing.assert_close(plain.weights, want)


@pytest.mark.parametrize(
    "normalize", [Gumbel(0.5), Sample(), Dropout(softmax, 0.5)], ids=lambda n: type(n).__name__
)
def test_reading_draws_no_random_numbers(normalize):
    w = world(5, 6, (2,))
    seen = attend(*w, normalize=normalize)
    state = torch.get_rng_state()
    _ = seen.weights, seen.scores
    assert torch.equal(torch.get_rng_state(), state)


# ---- devices


ELSEWHERE = {  # masks and settings made on the CPU, for queries that live on another device
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


@pytest.mark.bare
@pytest.mark.parametrize("normalize", [None, sparsemax], ids=["softmax", "sparsemax"])
@pytest.mark.parametrize("case", ELSEWHERE)
def test_masks_and_settings_follow_the_query_to_its_device(case, normalize):
    """The meta device stands for any other: it computes shapes, and refuses to meet the CPU."""
    given = (torch.empty(2, n, 4, device="meta") for n in (5, 6, 6))
    seen = attend(*given, **ELSEWHERE[case], normalize=normalize)
    assert seen.context.shape == (2, 5, 4)
    assert seen.weights.device.type == "meta"
