"""Small untrained models of transformers: equal to their eager attention, and watched."""

import inspect
import warnings
from functools import cache

import pytest
import torch

from regard.attention import causal
from regard.errors import UnsupportedError
from regard.viewing import huggingface, watch
from regard.viewing.huggingface import huggingface_attention, register_huggingface

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.filterwarnings("ignore")  # theirs are theirs
SIZES = {"vocab_size": 50, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
WIDE = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
STACK = {"layers": 2, "attention_heads": 2, "ffn_dim": 32}
STACKS = {f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in STACK.items()}
BART = {"d_model": 16, "decoder_start_token_id": 2, "forced_eos_token_id": None}
T5 = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2, "decoder_start_token_id": 0}
CAPPED = {"head_dim": 8, "sliding_window": 4, "attn_logit_softcapping": 5.0}
MAKE = {
    "Bart": ("BartForConditionalGeneration", {**SIZES, **STACKS, **BART}),
    "T5": ("T5ForConditionalGeneration", {"vocab_size": 50, **T5}),
    "GPT2": ("GPT2LMHeadModel", {**SIZES, "n_embd": 16, "n_layer": 2, "n_head": 2}),
    "Llama": ("LlamaForCausalLM", {**SIZES, **WIDE}),
    "Mistral": ("MistralForCausalLM", {**SIZES, **WIDE, "sliding_window": 3}),
    "Gemma2": ("Gemma2ForCausalLM", {**SIZES, **WIDE, **CAPPED}),
    "Bert": ("BertModel", {**SIZES, **WIDE}),
}
BLOOM = {"vocab_size": 50, "hidden_size": 16, "n_layer": 2, "n_head": 2}
IDS = torch.randint(3, 50, (2, 7))
MASK = (torch.arange(7) >= torch.tensor([0, 3])[:, None]).long()  # padded on the left, as for generation


@cache
def model(name):
    register_huggingface()
    torch.manual_seed(0)
    kind, sizes = MAKE[name]
    return getattr(transformers, kind)(getattr(transformers, f"{name}Config")(**sizes)).eval()


def model_inputs(name, mask):
    targets = {"decoder_input_ids": IDS[:, :5]} if name in ("Bart", "T5") else {}
    return {"input_ids": IDS, "attention_mask": mask, "use_cache": False, **targets}


def attentions(output):
    """The attentions of the model's output, in the order of the modules."""
    if output.get("encoder_attentions") is None:
        return list(output.attentions)
    pairs = zip(output.decoder_attentions, output.cross_attentions, strict=True)
    return [*output.encoder_attentions, *(one for pair in pairs for one in pair)]


@pytest.mark.parametrize("mask", [None, MASK], ids=["all", "padded"])
@pytest.mark.parametrize("name", MAKE)
def test_equal_to_eager(name, mask):
    one = model(name)
    one.set_attn_implementation("eager")
    with torch.no_grad():
        theirs = one(**model_inputs(name, mask), output_attentions=True)
        one.set_attn_implementation("regard")
        plain = one(**model_inputs(name, mask))[0]
        with watch(one) as records:
            ours = one(**model_inputs(name, mask))[0]
    assert torch.equal(plain, ours)
    there = torch.ones(2, 7).bool() if mask is None else mask.bool()
    rows = there if ours.shape[1] == 7 else torch.ones(2, 5).bool()
    torch.testing.assert_close(ours[rows], theirs[0][rows], atol=1e-5, rtol=0)
    for layer, (record, weights) in enumerate(zip(records, attentions(theirs), strict=True)):
        assert record.layer == layer
        valid = there if weights.shape[2] == 7 else rows  # padding queries are undefined
        torch.testing.assert_close(
            record.weights.transpose(1, 2)[valid], weights.transpose(1, 2)[valid], atol=1e-5, rtol=0
        )


@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("name", [name for name in MAKE if name != "Bert"])
def test_generation(name, beams):
    one = model(name)
    one.set_attn_implementation("regard")
    options = {"max_new_tokens": 4, "min_new_tokens": 4, "do_sample": False, "num_beams": beams}
    plain = one.generate(IDS, attention_mask=MASK, **options)
    with watch(one) as records:
        watched = one.generate(IDS, attention_mask=MASK, **options)
    assert torch.equal(plain, watched)
    last = records.calls(records.layers()[-1])
    assert len(last) == 4
    assert last[-1].weights.shape[::2] == (2 * beams, 1)


def test_layers_and_heads():
    one = model("Bart")
    one.set_attn_implementation("regard")
    with torch.no_grad(), watch(one, layers="*.encoder_attn", heads=1) as records:
        one(**model_inputs("Bart", None))
    assert records.layers() == [f"model.decoder.layers.{i}.encoder_attn" for i in (0, 1)]
    assert records[0].weights.shape == (2, 1, 5, 7)
    with pytest.raises(ValueError, match="no layer 9; the layers are 0"), watch(one, layers=9):
        pass


def test_training_with_dropout():
    one = model("Bart")
    one.set_attn_implementation("regard")
    one.train()
    try:
        torch.manual_seed(1)
        plain = one(**model_inputs("Bart", MASK), labels=IDS[:, :5].clone()).loss
        torch.manual_seed(1)
        with watch(one):
            watched = one(**model_inputs("Bart", MASK), labels=IDS[:, :5].clone()).loss
        assert torch.equal(plain, watched)
        watched.backward()
    finally:
        one.eval()
        one.zero_grad()


def test_other_implementations_are_rejected():
    one = model("Llama")
    one.set_attn_implementation("sdpa")
    words = r'LlamaForCausalLM uses attn_implementation=\'sdpa\'.*set_attn_implementation\("regard"\)'
    with pytest.raises(ValueError, match=words), watch(one):
        pass


def test_additive_masks_and_unsupported_arguments():
    module = torch.nn.Module()
    query, key, value = (torch.randn(2, 2, 3, 4) for _ in range(3))
    added = torch.randn(2, 1, 3, 3).masked_fill(torch.ones(3, 3).triu(1).bool(), torch.finfo(torch.float32).min)
    output = huggingface_attention(module, query, key, value, added)[0]
    expected = torch.softmax(query @ key.mT / 2 + added, -1) @ value
    torch.testing.assert_close(output, expected.transpose(1, 2))
    for name in ("cache", "sinks", "head_mask"):
        with pytest.raises(UnsupportedError):
            huggingface_attention(module, query, key, value, None, **{name: torch.zeros(2)})
    longer = torch.cat([key, key], 2)  # a cache with room for more
    causal = huggingface_attention(module, query, longer, torch.cat([value, value], 2), None, is_causal=True)[0]
    torch.testing.assert_close(causal, huggingface_attention(module, query, key, value, None, is_causal=True)[0])


def test_sinks_and_selected_keys():
    query, key, value = (torch.randn(2, 4, 5, 8) for _ in range(3))
    sinks, module = torch.randn(4, requires_grad=True), torch.nn.Module()
    context, weights = huggingface_attention(module, query, key, value, None, s_aux=sinks, output_attentions=True)
    scores = torch.cat([query @ key.mT / 8**0.5, sinks.view(1, 4, 1, 1).expand(2, 4, 5, 1)], -1)
    expected = scores.softmax(-1)[..., :-1]
    torch.testing.assert_close(weights, expected)
    torch.testing.assert_close(context, (expected @ value).transpose(1, 2))
    torch.testing.assert_close(*(torch.autograd.grad(one.square().sum(), sinks)[0] for one in (weights, expected)))
    indices = torch.tensor([0, 3]).expand(2, 5, 2)
    _, weights = huggingface_attention(module, query, key, value, None, indices=indices, output_attentions=True)
    assert torch.equal(weights[0, 0, 0] > 0, torch.tensor([True, False, False, True, False]))


@pytest.mark.parametrize("name", ["Bart", "GPT2", "Llama"])
def test_output_attentions(name):
    one = model(name)
    results = []
    for implementation in ("eager", "regard"):
        one.set_attn_implementation(implementation)
        with torch.no_grad():
            results.append(one(**model_inputs(name, None), output_attentions=True))
    for theirs, ours in zip(*map(attentions, results), strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)


def test_a_causal_model_without_padding_has_no_mask_matrix(monkeypatch):
    masks, attend = [], huggingface.attend_unwatched

    def record(query, key, value, mask, *rest, **options):
        masks.append(mask)
        return attend(query, key, value, mask, *rest, **options)

    monkeypatch.setattr(huggingface, "attend_unwatched", record)
    for name in ("Llama", "GPT2"):
        one = model(name)
        one.set_attn_implementation("regard")
        for mode in (torch.no_grad(), torch.inference_mode()):
            with mode:
                one(**model_inputs(name, None))
        one(**model_inputs(name, torch.ones(2, 7)))
    assert len(masks) == 12
    assert all(type(mask) is type(causal()) for mask in masks)


def test_a_changed_causal_mask_is_read():
    query, key, value = (torch.randn(1, 2, 3, 4) for _ in range(3))
    options = {"batch_size": 1, "q_length": 3, "kv_length": 3, "device": "cpu"}
    if "q_length" not in inspect.signature(transformers.masking_utils.sdpa_mask).parameters:
        pytest.skip("masks of an older transformers")
    mask = huggingface.create_mask(**options)
    mask[..., 0, 2] = 0.0
    weights = huggingface_attention(torch.nn.Module(), query, key, value, mask, output_attentions=True)[1]
    assert (weights[..., 0, 2] > 0).all()


def test_static_cache_and_packed_texts():
    one = model("Llama")
    packed = torch.tensor([[0, 1, 2, 3, 0, 1, 2]]).expand(2, 7)
    results = []
    for implementation in ("eager", "regard"):
        one.set_attn_implementation(implementation)
        options = {"max_new_tokens": 4, "min_new_tokens": 4, "do_sample": False, "disable_compile": True}
        static = one.generate(IDS, attention_mask=MASK, cache_implementation="static", **options)
        with torch.no_grad():
            results.append((static, one(IDS, position_ids=packed, use_cache=False)[0]))
    assert torch.equal(results[0][0], results[1][0])
    torch.testing.assert_close(results[1][1], results[0][1], atol=1e-5, rtol=0)


def test_attention_code_of_its_own():
    register_huggingface()
    config = transformers.BloomConfig(**BLOOM)
    for implementation in ("eager", "regard"):
        bloom = transformers.AutoModelForCausalLM.from_config(config, attn_implementation=implementation)
        with (
            pytest.raises(UnsupportedError, match="BloomForCausalLM computes its attention in code of its own"),
            watch(bloom),
        ):
            pass
    config = transformers.GPTJConfig(**BLOOM, n_embd=16, rotary_dim=4)
    with pytest.raises(UnsupportedError, match=r'GPTJForCausalLM .* use "eager"'):
        transformers.AutoModelForCausalLM.from_config(config, attn_implementation="regard")
    gptj = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    gptj.set_attn_implementation("regard")  # transformers warns, and keeps the old one
    with pytest.raises(UnsupportedError, match="code of its own"), watch(gptj):
        pass


def test_a_part_with_code_of_its_own_is_named():
    class TwoModels(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.bloom = transformers.BloomModel(transformers.BloomConfig(**BLOOM)).eval()
            self.llama = model("Llama")

        def forward(self):
            return self.bloom(IDS)[0], self.llama(**model_inputs("Llama", None))[0]

    pair = TwoModels()
    pair.llama.set_attn_implementation("regard")
    with torch.no_grad(), pytest.warns(UserWarning, match="BloomAttention cannot be watched"), watch(pair) as records:
        pair()
    assert len(records) == 2
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("error")
        with watch(pair, layers="llama"):
            pair()


def test_grouped_keys_are_not_copied(monkeypatch):
    shapes, kernel = [], torch.nn.functional.scaled_dot_product_attention

    def record(query, key, *arguments, **options):
        shapes.append((query.shape[1], key.shape[1]))
        return kernel(query, key, *arguments, **options)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", record)
    query, key = torch.randn(2, 4, 5, 8), torch.randn(2, 2, 5, 8)
    bias = torch.randn(1, 1, 5, 5)
    for mask in (None, bias):
        output, _ = huggingface.huggingface_attention(torch.nn.Module(), query, key, key, mask, scaling=0.5)
        full = key.repeat_interleave(2, 1)
        expected = kernel(query, full, full, mask, scale=0.5).transpose(1, 2)
        torch.testing.assert_close(output, expected)
    assert (4, 2) in shapes
    assert shapes.count((4, 4)) == 0
