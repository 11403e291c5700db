"""Rotary as Hugging Face's models have it: both layouts, partial, scaled, and with positions of its own."""

import math
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from regard.attention import (
    Additive,
    Attention,
    Dot,
    KVCache,
    MultiHead,
    Rotary,
    ScaledDot,
    attend,
    causal,
    dense,
    documents,
    padding,
    window,
)
from regard.errors import DtypeError, ShapeError, StaleStateError, UnsupportedError, UsageError
from regard.testing.checks import make_inputs

rope = pytest.importorskip("transformers.modeling_rope_utils")

YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 64}
LLAMA3 |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
SCALINGS = {
    "linear": {"rope_type": "linear", "factor": 2.5},
    "dynamic": {"rope_type": "dynamic", "factor": 3.0, "original_max_position_embeddings": 16},
    "dynamic, short": {"rope_type": "dynamic", "factor": 3.0, "original_max_position_embeddings": 100},
    "yarn": YARN,
    "yarn, limits": {**YARN, "beta_fast": 8.0, "beta_slow": 2.0, "truncate": False},
    "yarn, factor of both": {**YARN, "mscale": 0.7, "mscale_all_dim": 1.2},
    "yarn, attention_factor": {**YARN, "attention_factor": 1.3},
    "llama3": LLAMA3,
}


def hugging_face_config(scaling, dim, base):
    """What the functions of transformers read from a config."""
    trained = scaling.get("original_max_position_embeddings", 64)
    parameters = {**scaling, "rope_theta": base}
    return SimpleNamespace(
        rope_parameters=parameters,
        head_dim=dim,
        hidden_size=dim,
        num_attention_heads=1,
        max_position_embeddings=trained,
        standardize_rope_params=lambda: None,
    )


def hugging_face_rotation(x, positions, scaling, base=10000.0):
    """x (batch, heads, n, dim) rotated by transformers' frequencies and its apply_rotary_pos_emb."""
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

    dim = x.shape[-1]
    if scaling is None:
        frequencies, factor = base ** (-torch.arange(0, dim, 2).double() / dim), 1.0
    else:
        compute = rope.ROPE_INIT_FUNCTIONS[scaling["rope_type"]]
        frequencies, factor = compute(hugging_face_config(scaling, dim, base), seq_len=int(positions.max()) + 1)
    angle = positions[..., None] * frequencies.double()
    cos, sin = (factor * torch.cat([part, part], -1) for part in (angle.cos(), angle.sin()))
    return apply_rotary_pos_emb(x, x, cos, sin)[0]


@pytest.mark.parametrize("base", [10000.0, 500.0])
@pytest.mark.parametrize("scaling", [None, *SCALINGS.values()], ids=["unscaled", *SCALINGS])
def test_rotate_half_equals_transformers(scaling, base):
    x = torch.randn(2, 3, 40, 32, dtype=torch.float64)
    rotary = Rotary(Dot(), base, interleaved=False, scaling=scaling)
    expected = hugging_face_rotation(x, torch.arange(40)[None], scaling, base)
    # transformers computes frequencies in float32: 1e-7 of each, 4e-6 of an angle of 40
    torch.testing.assert_close(rotary.project_key(x), expected, rtol=1e-6, atol=1e-5)
    torch.testing.assert_close(rotary.project_query(x, 40), expected, rtol=1e-6, atol=1e-5)
    if scaling is not None and scaling["rope_type"] != "dynamic":
        assert not torch.allclose(
            rotary.project_key(x), Rotary(Dot(), base, interleaved=False).project_key(x), atol=0.1
        )


@pytest.mark.parametrize("scaling", SCALINGS.values(), ids=SCALINGS)
@pytest.mark.parametrize("length", [10, 64, 5000])
def test_scaled_frequencies_equal_those_of_transformers(scaling, length):
    from regard.attention.rotary import check_scaling, scale_frequencies

    for dim, base in ((2, 10000.0), (32, 10000.0), (128, 500000.0)):
        config = hugging_face_config(scaling, dim, base)
        if dim == 2 and scaling["rope_type"] == "dynamic":
            continue  # transformers divides by zero
        expected, factor = rope.ROPE_INIT_FUNCTIONS[scaling["rope_type"]](config, seq_len=length)
        frequencies = base ** (-torch.arange(0, dim, 2).double() / dim)
        scaled, attention_factor = scale_frequencies(frequencies, check_scaling(scaling), base, length)
        torch.testing.assert_close(scaled, expected.double(), rtol=1e-6, atol=0)
        assert attention_factor == pytest.approx(factor)


def test_the_factor_of_a_published_model():
    """Qwen2.5 with yarn: 0.1 ln 4 + 1."""
    vector = torch.randn(1, 8)
    scaling = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
    rotated = Rotary(Dot(), 1e6, interleaved=False, scaling=scaling).project_key(vector)
    torch.testing.assert_close(rotated, vector * (0.1 * math.log(4) + 1))


def test_interleaved_and_partial_equal_gptj():
    from transformers.models.gptj.modeling_gptj import apply_rotary_pos_emb, create_sinusoidal_positions

    x = torch.randn(2, 9, 3, 16)  # (batch, positions, heads, dim)
    sin, cos = create_sinusoidal_positions(9, 8).expand(2, -1, -1).chunk(2, -1)
    expected = torch.cat([apply_rotary_pos_emb(x[..., :8], sin, cos), x[..., 8:]], -1)
    rotated = Rotary(Dot(), rotary_dim=8).project_key(x.transpose(1, 2)).transpose(1, 2)
    torch.testing.assert_close(rotated, expected, rtol=1e-6, atol=2e-6)
    assert torch.equal(rotated[..., 8:], x[..., 8:])


def test_partial_rotate_half_equals_gpt_neox():
    from transformers.models.gpt_neox.modeling_gpt_neox import apply_rotary_pos_emb

    x = torch.randn(2, 3, 9, 16, dtype=torch.float64)
    angle = torch.arange(9)[:, None] * 10000.0 ** (-torch.arange(0, 4, 2).double() / 4)
    cos, sin = (torch.cat([part, part], -1)[None] for part in (angle.cos(), angle.sin()))
    expected = apply_rotary_pos_emb(x, x, cos, sin)[0]
    for options in ({"rotary_dim": 4}, {"scaling": {"rope_type": "default", "partial_rotary_factor": 0.25}}):
        torch.testing.assert_close(Rotary(Dot(), interleaved=False, **options).project_key(x), expected)


def test_the_layouts_are_permutations_of_each_other():
    q, k = torch.randn(2, 5, 8, dtype=torch.float64), torch.randn(2, 7, 8, dtype=torch.float64)
    order = torch.arange(8).view(4, 2).T.flatten()  # 0 2 4 6 1 3 5 7
    scores = Rotary(ScaledDot())(q, k)
    torch.testing.assert_close(Rotary(ScaledDot(), interleaved=False)(q[..., order], k[..., order]), scores)
    assert not torch.allclose(Rotary(ScaledDot(), interleaved=False)(q, k), scores)


def test_the_parameters_of_a_config_are_accepted_as_they_are():
    transformers = pytest.importorskip("transformers")

    config = transformers.LlamaConfig(rope_parameters={**LLAMA3, "rope_theta": 500000.0})
    rotary = Rotary(ScaledDot(), interleaved=False, scaling=config.rope_parameters)
    assert rotary.base == 500000.0
    assert Rotary(ScaledDot(), 500000.0, scaling=config.rope_parameters).base == 500000.0
    assert repr(rotary).startswith("Rotary(\n  base=500000.0, offset=None, interleaved=False, scaling={'factor': 8.0")
    assert config.rope_parameters["rope_theta"] == 500000.0  # the caller's dict is unchanged


# ---- paths, cache


@pytest.mark.parametrize("scaling", SCALINGS.values(), ids=SCALINGS)
def test_fused_and_by_the_definition(scaling, used_paths):
    sample = make_inputs(40, 40, (2, 3), 8, 8).requiring_grad()
    score = Rotary(ScaledDot(), interleaved=False, rotary_dim=6, scaling=scaling)
    output = attend(*sample, causal(), score=score)
    assert used_paths == ["fused"]
    torch.testing.assert_close(output.context, output.weights @ sample.value)


@pytest.mark.parametrize("inner", [ScaledDot, lambda: Additive(4, 4, 5).double()], ids=["dot", "additive"])
def test_packed_sequences_start_anew(inner, used_paths):
    """Two sequences in one row: positions and documents make them as far from each other as two calls."""
    lengths = [(60, 140), (150, 50)]
    sample = make_inputs(200, 200, (2, 3))
    positions = torch.stack([torch.cat([torch.arange(n) for n in row]) for row in lengths])
    inner = inner()
    mask = causal() & documents(
        torch.stack([torch.repeat_interleave(torch.arange(2), torch.tensor(n)) for n in lengths])
    )
    packed = attend(*sample, mask, score=Rotary(inner, positions=positions))
    for row, (first, _) in enumerate(lengths):
        for part in (slice(0, first), slice(first, None)):
            alone = [t[row, :, part] for t in sample]
            expected = attend(*alone, causal(), score=Rotary(inner)).context
            torch.testing.assert_close(packed.context[row, :, part], expected)
    local = attend(*sample, mask & window(5, 0), score=Rotary(inner, positions=positions))
    assert "banded" in used_paths
    torch.testing.assert_close(local.context, local.weights @ sample.value)


def test_positions_of_left_padded_rows_equal_the_unpadded_call():
    sample = make_inputs(8, 8, (2, 3))
    attention_mask = torch.tensor([[1] * 8, [0] * 3 + [1] * 5])
    positions = (attention_mask.cumsum(-1) - 1).clamp(min=0)
    scaling = {"rope_type": "dynamic", "factor": 2.0, "original_max_position_embeddings": 8}
    mask = causal() & dense(attention_mask[:, None, None].bool())
    output = attend(*sample, mask, score=Rotary(interleaved=False, scaling=scaling, positions=positions))
    expected = attend(*[t[1, :, 3:] for t in sample], causal(), score=Rotary(interleaved=False)).context
    torch.testing.assert_close(output.context[1, :, 3:], expected)


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize(
    "scaling", [None, YARN, LLAMA3, SCALINGS["linear"]], ids=["unscaled", "yarn", "llama3", "linear"]
)
def test_decoding_with_a_cache_equals_the_full_call(kv_heads, scaling):
    score = Rotary(ScaledDot(), interleaved=False, rotary_dim=4, scaling=scaling)
    attention, cache = MultiHead(32, 4, kv_heads, score=score).double().eval(), KVCache()
    x, positions = torch.randn(2, 9, 32, dtype=torch.float64), torch.tensor([list(range(9)), [0, 0, 0, *range(6)]])
    score.positions = positions
    with torch.no_grad():
        full = attention(x, mask=causal()).context
        for at in range(9):
            score.positions = positions[:, : at + 1]
            step = attention(x[:, at : at + 1], mask=causal(), cache=cache)
            torch.testing.assert_close(step.context[:, 0], full[:, at])


def test_a_dynamic_base_grows_with_the_cache():
    """Each step equals the call with all tokens so far, whose keys are rotated with the base of that length."""
    scaling = {"rope_type": "dynamic", "factor": 2.0, "original_max_position_embeddings": 4}
    attention, cache = MultiHead(16, 2, score=Rotary(scaling=scaling)).double().eval(), KVCache()
    x = torch.randn(1, 9, 16, dtype=torch.float64)
    with torch.no_grad():
        for at in range(9):
            step = attention(x[:, at : at + 1], mask=causal(), cache=cache).context
            torch.testing.assert_close(step[:, 0], attention(x[:, : at + 1], mask=causal()).context[:, -1])


def test_fixed_keys_have_their_positions():
    score = Rotary(positions=torch.tensor([[0, 1, 2, 7], [3, 4, 5, 6]]))
    attention = MultiHead(16, 2, score=score).double()
    memory, query = torch.randn(2, 4, 16, dtype=torch.float64), torch.randn(2, 1, 16, dtype=torch.float64)
    fixed = attention.precompute(memory)
    torch.testing.assert_close(fixed(query).context, attention(query, memory).context)
    with pytest.raises(UnsupportedError, match=r"the score has positions for each row"):
        fixed.reorder(torch.tensor([1, 0]))


def test_more_axes_of_the_values_do_not_move_those_of_the_positions():
    query, key = torch.randn(2, 5, 4, dtype=torch.float64), torch.randn(2, 5, 4, dtype=torch.float64)
    value, positions = torch.randn(2, 2, 5, 3, dtype=torch.float64), torch.tensor([[0, 1, 2, 3, 4], [7, 1, 5, 0, 2]])
    output = attend(query, key, value, score=Rotary(positions=positions))
    weights = attend(query, key, value[0], score=Rotary(positions=positions)).weights
    torch.testing.assert_close(output.context, weights @ value)


def test_a_class_without_arguments_is_a_score():
    sample = make_inputs(5, 7, (2,))
    torch.testing.assert_close(
        attend(*sample, score=Rotary).context, attend(*sample, score=Rotary(ScaledDot())).context
    )
    assert isinstance(Attention(Rotary).score.score, ScaledDot)


def test_weights_of_other_positions_cannot_be_read():
    score = Rotary(positions=torch.arange(5))
    output = attend(*make_inputs(5, 5, ()), score=score)
    score.positions = torch.arange(5) * 2
    with pytest.raises(StaleStateError):
        _ = output.weights


def test_gradients_reach_the_vectors():
    sample = make_inputs(3, 4, (2,))
    score = Rotary(Dot(), interleaved=False, rotary_dim=2, scaling=YARN)
    inputs = [t.requires_grad_() for t in (sample.query[..., :3, :].clone(), sample.key.clone())]
    assert torch.autograd.gradcheck(score, inputs)


def test_positions_move_with_the_module_and_are_not_saved():
    layer = nn.Sequential(Rotary(positions=torch.arange(5)))
    assert not layer.state_dict()
    assert layer.to("meta")[0].positions.device.type == "meta"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_positions_keep_their_precision(dtype):
    positions = torch.tensor([4099.0, 70001.5, 3.25])
    score = Rotary(positions=positions)
    nn.Sequential(score).to(dtype)
    assert torch.equal(score.positions, positions)
    assert score.to("meta", dtype).positions.is_meta
    assert score.positions.dtype == torch.float32
    assert score.to_empty(device="cpu").positions.shape == (3,)


# ---- errors


@pytest.mark.bare
@pytest.mark.parametrize(
    ("scaling", "message"),
    [
        (
            {"rope_type": "longrope", "factor": 2.0},
            "unknown rope_type 'longrope' of scaling; known types are default, lin",
        ),
        ({"rope_type": "linear"}, "scaling of type 'linear' needs factor"),
        ({"rope_type": "dynamic", "factor": 2.0}, "needs original_max_position_embeddings; .* is max_position_emb"),
        ({"rope_type": "linear", "factor": 2.0, "beta_fast": 3}, "unknown key 'beta_fast' in scaling of type 'linear'"),
        ({"rope_type": "linear", "factor": 0}, "factor in scaling must be a positive number, got 0"),
        ({"rope_type": "linear", "factor": "2"}, "factor in scaling must be a positive number, got '2'"),
        ({**YARN, "truncate": 1}, "truncate in scaling must be True or False, got 1"),
        ({**LLAMA3, "high_freq_factor": 0.5}, "high_freq_factor in scaling must be above low_freq_factor"),
        ("linear", "scaling must be a dict such as config.rope_parameters, got str"),
        ({"rope_type": "linear", "factor": 2.0, "rope_theta": 5.0}, "scaling has rope_theta=5.0, but base=100"),
    ],
)
def test_unusable_scalings_are_refused(scaling, message):
    with pytest.raises(UsageError, match=message):
        Rotary(Dot(), 100.0, scaling=scaling)


@pytest.mark.bare
def test_unusable_sizes_and_positions_are_refused():
    for size in (0, 3, -2):
        with pytest.raises(UsageError, match="rotary_dim must be an even number"):
            Rotary(Dot(), rotary_dim=size)
    sample = make_inputs(5, 7, (2, 3))
    with pytest.raises(ShapeError, match=r"at least rotary_dim=6 features, got query"):
        attend(*sample, score=Rotary(rotary_dim=6))
    for positions in (
        torch.arange(6),
        torch.zeros(3, 7),
        torch.zeros(2, 2, 7),
        torch.zeros(2, 3, 1, 7),
        torch.tensor(3),
    ):
        with pytest.raises(ShapeError, match=r"positions must be \(\*batch, keys\) = \(2, 7\)"):
            attend(*sample, score=Rotary(positions=positions))
    with pytest.raises(
        ShapeError, match="every query stands at a key, got 5 queries from key position 3 on, and 7 keys"
    ):
        attend(*sample, score=Rotary(positions=torch.arange(7), offset=3))
    with pytest.raises(ShapeError, match=r"positions must be .* for query \(5, 4\) and key \(2, 3, 7, 4\)"):
        attend(sample.query[0, 0], sample.key, sample.value, score=Rotary(positions=torch.zeros(2, 7)))
    with pytest.raises(DtypeError, match=r"positions must be a tensor of numbers, got torch\.bool"):
        attend(*sample, padding([7, 7]), score=Rotary(positions=torch.ones(7, dtype=torch.bool)))
