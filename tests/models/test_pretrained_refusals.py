"""Damaged checkpoints and models without a layout: one sentence, and neither a traceback nor wrong logits."""

import json

import pytest
import torch
from safetensors.torch import save_file

import regard
from regard.attention import MultiHead, Sinusoidal
from regard.errors import (
    DtypeError,
    ExportError,
    RunFormatError,
    RunNotFoundError,
    UnsupportedError,
    UsageError,
    WeightsMismatchError,
)
from regard.models import Bert, BertForMaskedLM, CausalLM, Transformer
from regard.models.layers import FeedForward
from regard.models.pretrained import to_transformers

SIZES = {"embed_dim": 16, "num_heads": 2, "num_layers": 1}
INDEX = "model.safetensors.index.json"


def make_llama():
    return CausalLM(
        11, **SIZES, embed_scale=1.0, make_norm=lambda: torch.nn.RMSNorm(16, 1e-6), make_positions=lambda: None,
        make_self_attn=lambda: MultiHead(16, 2, bias=False, score=regard.attention.Rotary(interleaved=False)),
        make_feed_forward=lambda: FeedForward(16, 24, gated=True, bias=False),
    )  # fmt: skip


def make_marian(**options):
    return Transformer(11, 11, embed_dim=16, num_heads=2, num_encoder_layers=1, ffn_dim=16, **options)


def make_bart():
    norm = {"make_embed_norm": lambda: torch.nn.LayerNorm(16), "tie_embeddings": "all"}
    return make_marian(make_positions=lambda: regard.attention.Learned(9, 16), **norm)


MODELS = {
    "bert": lambda: Bert(11, **SIZES, max_positions=9),
    "roberta": lambda: Bert(11, **SIZES, max_positions=9),
    "gpt2": lambda: CausalLM(11, **SIZES),
    "llama": make_llama,
    "marian": make_marian,
    "bart": make_bart,
}


def save_checkpoint(folder, name, model=None, **changes):
    config, weights = to_transformers(MODELS[name]() if model is None else model)
    if name == "roberta":
        weights = {key.replace("bert.", "roberta."): tensor for key, tensor in weights.items()}
        config |= {"model_type": "roberta", "pad_token_id": 1}
    (folder / "config.json").write_text(json.dumps(config | changes))
    save_file(weights, folder / "model.safetensors")
    return folder


@pytest.mark.parametrize(
    "options",
    [
        {"add_zero_attn": True},
        {"add_bias_kv": True},
        {"qk_norm": lambda dim: torch.nn.LayerNorm(dim, elementwise_affine=False)},
        {"head_dim": 4},
        {"value_head_dim": 4},
        {"out_bias": False},
        {"bias": False},
    ],
)
def test_attention_without_a_layout_is_refused(options):
    def make_attention():
        return MultiHead(16, 2, **options)

    for model in (make_marian(make_self_attn=make_attention), CausalLM(11, **SIZES, make_self_attn=make_attention)):
        with pytest.raises(ExportError, match="another attention"):
            to_transformers(model)


@pytest.mark.parametrize("norm_first", [False, True])
def test_sinusoidal_positions_with_another_base_are_refused(norm_first):
    for interleaved in (False, True):
        model = make_marian(
            make_positions=lambda: Sinusoidal(16, 100.0, interleaved=interleaved),  # noqa: B023
            norm_first=norm_first,
            tie_embeddings="all",
        )
        with pytest.raises(ExportError, match="another base; export"):
            to_transformers(model)
    model = make_marian()
    model.tgt_embed.positions = Sinusoidal(16, interleaved=False)
    with pytest.raises(ExportError, match="differ in the order of sines and cosines"):
        to_transformers(model)


@pytest.mark.parametrize("has_head", [False, True])
def test_hidden_states_of_bert_with_and_without_a_head(has_head, tmp_path):
    bert = Bert(11, **SIZES, max_positions=9).eval()
    save_checkpoint(tmp_path, "bert", BertForMaskedLM(bert, norm_eps=1e-12).eval() if has_head else bert)
    model = regard.from_pretrained(tmp_path)
    tokens, lengths = torch.tensor([[5, 6, 3]]), torch.tensor([3])
    encoder = model if isinstance(model, Bert) else model.encoder  # as in docs/pretrained.md
    assert (encoder is model) != has_head
    with torch.no_grad():
        torch.testing.assert_close(encoder(tokens, lengths), bert(tokens, lengths))


@pytest.mark.parametrize(
    "text",
    ["{}", "[]", "{", '{"weight_map": [1]}', '{"weight_map": {"a": 1}}', '{"weight_map": {}}',
     '{"weight_map": {"a": ""}}'],
)  # fmt: skip
def test_a_damaged_index_is_refused(text, tmp_path):
    save_checkpoint(tmp_path, "bert")
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / INDEX).write_text(text)
    with pytest.raises(RunFormatError, match=rf"{INDEX} is damaged: .*download it again"):
        regard.from_pretrained(tmp_path)


@pytest.mark.parametrize(
    "content", [[1], {"state_dict": {"a": torch.ones(1)}}, {"a": "x"}, {"a": None}, {1: torch.ones(1)}]
)
def test_a_file_without_a_state_dict_is_refused(content, tmp_path):
    save_checkpoint(tmp_path, "bert")
    (tmp_path / "model.safetensors").unlink()
    torch.save(content, tmp_path / "pytorch_model.bin")
    with pytest.raises(RunFormatError, match=r"pytorch_model\.bin must have a dict from names to tensors"):
        regard.from_pretrained(tmp_path)


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("bert", "layer_norm_eps", "abc"),
        ("bert", "layer_norm_eps", [1]),
        ("bert", "layer_norm_eps", -1),
        ("bert", "layer_norm_eps", float("nan")),
        ("bert", "hidden_dropout_prob", "x"),
        ("bert", "hidden_dropout_prob", 1),
        ("bert", "vocab_size", 10**13),
        ("bert", "vocab_size", 10**30),
        ("bert", "max_position_embeddings", 10**12),
        ("roberta", "pad_token_id", "x"),
        ("roberta", "pad_token_id", -5),
        ("roberta", "max_position_embeddings", 2),
        ("gpt2", "layer_norm_epsilon", "x"),
        ("gpt2", "resid_pdrop", "x"),
        ("llama", "rms_norm_eps", "x"),
        ("marian", "dropout", "x"),
    ],
)
def test_a_field_that_is_no_size_or_number_is_refused(name, field, value, tmp_path):
    save_checkpoint(tmp_path, name, **{field: value})
    with pytest.raises(UnsupportedError, match=rf"config\.json: {field} must be "):
        regard.from_pretrained(tmp_path)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("llama", {"rope_parameters": {"rope_type": ["x"]}}),
        ("llama", {"model_type": "qwen2", "layer_types": 3, "attention_bias": None}),
        ("llama", {"model_type": "qwen2", "layer_types": [[1]], "attention_bias": None}),
        ("llama", {"model_type": "qwen2", "max_window_layers": "x", "attention_bias": None}),
    ],
)
def test_fields_of_the_wrong_kind_are_refused(name, change, tmp_path):
    save_checkpoint(tmp_path, name, **change)
    with pytest.raises(UnsupportedError, match="must be a"):
        regard.from_pretrained(tmp_path)


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("bert", "vocab_size"),
        ("bert", "hidden_size"),
        ("bert", "max_position_embeddings"),
        ("gpt2", "n_positions"),
        ("gpt2", "n_embd"),
        ("llama", "vocab_size"),
        ("marian", "decoder_vocab_size"),
        ("bart", "max_position_embeddings"),
    ],
)
def test_sizes_are_compared_before_memory_is_taken(name, field, tmp_path):
    save_checkpoint(tmp_path, name, **{field: 2**31 - 2})
    with pytest.raises(WeightsMismatchError, match=r"does not fit config\.json|sizes that no tensor can have"):
        regard.from_pretrained(tmp_path)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused(value, tmp_path):
    model = MODELS["bert"]()
    model.segment_embed.weight.data[1, 3] = value
    save_checkpoint(tmp_path, "bert", model)
    with pytest.raises(WeightsMismatchError, match=r"token_type_embeddings\.weight is not finite"):
        regard.from_pretrained(tmp_path)


@pytest.mark.bare
def test_arguments(tmp_path, monkeypatch):
    save_checkpoint(tmp_path, "bert")
    for dtype in ("float16", torch.int32):
        with pytest.raises(DtypeError, match=r"dtype must be a floating-point dtype such as torch\.float16"):
            regard.from_pretrained(tmp_path, dtype=dtype)
    with pytest.raises(UsageError, match="device must be"):
        regard.from_pretrained(tmp_path, device="nonsense")
    assert regard.from_pretrained(tmp_path, dtype=torch.float16, device="cpu").norm.weight.dtype == torch.float16
    monkeypatch.chdir(tmp_path)  # "" is not the current folder
    with pytest.raises(RunNotFoundError, match="without a name"):
        regard.from_pretrained("")
