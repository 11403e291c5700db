"""Small untrained models of transformers: equal to their eager attention, and watched."""

import warnings
from functools import cache

import pytest
import torch

from regard.viewing import watch
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
    with pytest.raises(ValueError, match='Module needs s_aux, which attn_implementation="regard" does not support'):
        huggingface_attention(module, query, key, value, None, s_aux=torch.zeros(2))
    longer = torch.cat([key, key], 2)  # a cache with room for more
    causal = huggingface_attention(module, query, longer, torch.cat([value, value], 2), None, is_causal=True)[0]
    torch.testing.assert_close(causal, huggingface_attention(module, query, key, value, None, is_causal=True)[0])
