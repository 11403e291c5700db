"""Checkpoints of Hugging Face: equal logits, equal generation, weights both ways, and refusals."""

import json

import pytest
import torch
from safetensors.torch import save_file

import regard
from regard.attention import Dot, Learned, MultiHead, RelativeBias, Rotary
from regard.decoding import DecodingConfig, decode
from regard.errors import DownloadError, ExportError, RunNotFoundError, UnsupportedError, WeightsMismatchError
from regard.models import CausalLM, Transformer
from regard.models.bert import Bert, BertForMaskedLM
from regard.models.layers import FeedForward, ScaledRMSNorm
from regard.models.pretrained import to_transformers

transformers = pytest.importorskip("transformers")
VOCAB, PAD, EOS = 40, 39, 0
SEQ2SEQ = {"d_model": 16, "encoder_layers": 2, "decoder_layers": 1, "vocab_size": VOCAB, "max_position_embeddings": 64}
SEQ2SEQ |= {f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in
            (("attention_heads", 2), ("ffn_dim", 24))}  # fmt: skip
SEQ2SEQ |= {"pad_token_id": PAD, "eos_token_id": EOS, "decoder_start_token_id": PAD, "forced_eos_token_id": None}
MARIAN = {**SEQ2SEQ, "decoder_vocab_size": VOCAB, "activation_function": "swish", "scale_embedding": True}
BERT = {"vocab_size": VOCAB, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
BERT |= {"intermediate_size": 24, "max_position_embeddings": 32}
GPT2 = {"vocab_size": VOCAB, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 32, "bos_token_id": 1}
GPT2 |= {"eos_token_id": 2}
LLAMA = {"vocab_size": VOCAB, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "bos_token_id": 1}
LLAMA |= {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64, "pad_token_id": 2}
SCALED = {"rope_type": "llama3", "rope_theta": 500.0, "factor": 4.0, "original_max_position_embeddings": 6}
SCALED |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
YARN = {"rope_type": "yarn", "rope_theta": 500.0, "factor": 8.0, "original_max_position_embeddings": 8}
DYNAMIC = {
    "rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 100.0},
    "max_position_embeddings": 6,
}
T5 = {"vocab_size": VOCAB, "d_model": 12, "d_kv": 5, "d_ff": 24, "num_layers": 2, "num_decoder_layers": 1}
T5 |= {"num_heads": 2, "relative_attention_num_buckets": 8, "relative_attention_max_distance": 7, "pad_token_id": PAD}
T5 |= {"eos_token_id": EOS, "decoder_start_token_id": PAD}
CASES = {
    "t5": ("T5ForConditionalGeneration", T5),
    "t5, 1.1": (
        "T5ForConditionalGeneration", {**T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}),
    "llama": ("LlamaForCausalLM", LLAMA),
    "llama, other parts": (
        "LlamaForCausalLM", {**LLAMA, "tie_word_embeddings": True, "attention_bias": True, "mlp_bias": True,
                             "head_dim": 6, "hidden_act": "gelu_new", "rope_parameters": SCALED}),
    "llama, dynamic": ("LlamaForCausalLM", {**LLAMA, **DYNAMIC, "rms_norm_eps": 1e-3}),
    "mistral": ("MistralForCausalLM", {**LLAMA, "sliding_window": 4, "head_dim": 8}),
    "mistral, all tokens": ("MistralForCausalLM", {**LLAMA, "sliding_window": None, "num_key_value_heads": 1}),
    "qwen2": ("Qwen2ForCausalLM", {**LLAMA, "tie_word_embeddings": True, "rope_parameters": YARN}),
    "qwen2, window": ("Qwen2ForCausalLM", {**LLAMA, "use_sliding_window": True, "sliding_window": 3,
                                           "max_window_layers": 0}),
    "qwen3": ("Qwen3ForCausalLM", {**LLAMA, "head_dim": 10, "num_key_value_heads": 4}),
    "qwen3, bias": ("Qwen3ForCausalLM", {**LLAMA, "head_dim": 4, "attention_bias": True}),
    "marian": ("MarianMTModel", MARIAN),
    "marian, two vocabularies": (
        "MarianMTModel", {**MARIAN, "share_encoder_decoder_embeddings": False, "decoder_vocab_size": 45}),
    "marian, nothing shared": (
        "MarianMTModel", {**MARIAN, "share_encoder_decoder_embeddings": False, "tie_word_embeddings": False}),
    "bart": ("BartForConditionalGeneration", SEQ2SEQ),
    "pegasus": ("PegasusForConditionalGeneration", {**SEQ2SEQ, "activation_function": "relu"}),
    "bert": ("BertModel", BERT),
    "bert, masked": ("BertForMaskedLM", {**BERT, "hidden_act": "gelu_new", "layer_norm_eps": 1e-3}),
    "roberta": ("RobertaModel", {**BERT, "type_vocab_size": 1}),
    "roberta, masked": ("RobertaForMaskedLM", BERT),
    "gpt2": ("GPT2LMHeadModel", GPT2),
    "gpt2, other parts": (
        "GPT2LMHeadModel", {**GPT2, "n_inner": 24, "activation_function": "relu", "tie_word_embeddings": False}),
}  # fmt: skip


@pytest.fixture(autouse=True)
def _quiet():
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()


def make_checkpoint(folder, name, **changes):
    """A random model of transformers in a folder; biases and norms are random too, as in a trained one."""
    class_name, options = CASES[name]
    model_class = getattr(transformers, class_name)
    model = model_class(model_class.config_class(**{**options, **changes})).eval()
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if parameter.requires_grad:
                parameter.normal_(0.5 if "norm" in key.lower() or "ln_" in key else 0.0, 0.3)
        if name == "t5, 1.1":  # transformers 5 ties the output, unless a file has two weights
            model.lm_head.weight = torch.nn.Parameter(torch.randn(VOCAB, 12))
            model.config.tie_word_embeddings = False
        if "t5" in name:  # so that targets end: there is no bias of the output
            hidden = model.model_dim**-0.5 * model.decoder(
                torch.randint(3, PAD, (9, 9)), encoder_hidden_states=torch.randn(9, 9, 12)
            ).last_hidden_state.mean((0, 1))
            model.lm_head.weight[EOS] = hidden * 4 / hidden.norm()
        if hasattr(model, "final_logits_bias"):
            model.final_logits_bias.normal_()
            model.final_logits_bias[0, EOS] += 4  # so that targets end
    model.save_pretrained(folder)
    return model


def make_inputs():
    lengths = torch.tensor([9, 5, 7])
    source = torch.randint(3, PAD, (3, 9))
    return source, lengths, (torch.arange(9) < lengths[:, None]).long()


@torch.no_grad()
def compute_both(theirs, ours):
    """The logits (or hidden states) of both models, where there are tokens."""
    source, lengths, mask = make_inputs()
    if isinstance(ours, Transformer):
        target = torch.randint(3, PAD, (3, 6))
        output = theirs(input_ids=source, attention_mask=mask, decoder_input_ids=target)
        return output.logits, ours(source, lengths, target)
    if isinstance(ours, CausalLM):
        return theirs(source).logits, ours(source)
    segments = torch.randint(theirs.config.type_vocab_size, source.shape)
    if theirs.config.model_type == "roberta":
        source = source.masked_fill(mask == 0, theirs.config.pad_token_id)
    output = theirs(source, attention_mask=mask, token_type_ids=segments)
    hidden = ours(source, lengths, segments)
    if isinstance(ours, Bert):
        torch.testing.assert_close(ours.pool(hidden), output.pooler_output, atol=1e-5, rtol=0)
    values = output.logits if "logits" in output else output.last_hidden_state
    return values[mask.bool()], hidden[mask.bool()]


@pytest.mark.parametrize("name", CASES)
def test_equal_logits_and_equal_weights_on_the_way_back(name, tmp_path):
    theirs = make_checkpoint(tmp_path, name)
    ours = regard.from_pretrained(tmp_path)
    assert not ours.training
    expected, output = compute_both(theirs, ours)
    assert expected.std() > 0.1
    torch.testing.assert_close(output, expected, atol=1e-5, rtol=0)
    if "roberta" in name:
        return  # its table of positions begins with rows that BERT does not have
    config, weights = to_transformers(ours)
    state, prefix = theirs.state_dict(), "bert." if name == "bert" else ""
    for key, tensor in weights.items():
        offset = 2 if "embed_positions" in key else 0  # two rows that BART never reads
        assert torch.equal(tensor[offset:], state[key.removeprefix(prefix)][offset:]), key
    (tmp_path / "back").mkdir()
    save_file(weights, tmp_path / "back" / "model.safetensors", {"format": "pt"})
    ids = {key: theirs.config.to_dict().get(key) for key in ("pad_token_id", "eos_token_id", "bos_token_id")}
    (tmp_path / "back" / "config.json").write_text(json.dumps(config | ids))
    loaded = type(theirs).from_pretrained(tmp_path / "back").eval()
    torch.manual_seed(1)
    expected, _ = compute_both(theirs, ours)
    torch.manual_seed(1)
    torch.testing.assert_close(compute_both(loaded, ours)[0], expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("beam_size", [1, 4])
@pytest.mark.parametrize("name", ["marian", "bart", "t5", "t5, 1.1"])
def test_equal_generation(name, beam_size, tmp_path):
    theirs = make_checkpoint(tmp_path, name)
    ours, (source, lengths, mask) = regard.from_pretrained(tmp_path), make_inputs()
    search = DecodingConfig(
        method="beam" if beam_size > 1 else "greedy", beam_size=beam_size, length_penalty_type="power",
        length_penalty=1.0, max_length=39, max_length_ratio=100.0,
    )  # fmt: skip
    hypotheses = decode(ours, source, lengths, search, bos=PAD, eos=EOS, pad=PAD)
    tokens = theirs.generate(
        source, attention_mask=mask, num_beams=beam_size, early_stopping=beam_size > 1, max_length=40,
        bad_words_ids=[[PAD]], do_sample=False,
    )  # fmt: skip
    assert sum(best.finished for best, *_ in hypotheses) > 1
    assert beam_size == 1 or all(best.finished for best, *_ in hypotheses)
    rows = [[*row, EOS] for row in tokens[:, 1:].tolist()]
    assert [best.token_ids for best, *_ in hypotheses] == [row[: row.index(EOS)] for row in rows]


@pytest.mark.parametrize("name", ["gpt2", "llama", "llama, other parts", "mistral", "qwen2", "qwen3"])
def test_equal_greedy_continuation(name, tmp_path):
    theirs = make_checkpoint(tmp_path, name, eos_token_id=2)
    prompt = torch.randint(3, VOCAB, (1, 5))
    search = DecodingConfig(method="greedy", max_length=10, max_length_offset=10)
    ((best,),) = decode(regard.from_pretrained(tmp_path), prompt, torch.tensor([5]), search, bos=1, eos=2, pad=1)
    tokens = theirs.generate(prompt, max_new_tokens=10, do_sample=False, bad_words_ids=[[1]], pad_token_id=2)
    assert best.token_ids == [token for token in tokens[0, 5:].tolist() if token != 2]


def test_rotary_settings_of_earlier_files(tmp_path):
    make_checkpoint(tmp_path, "llama, other parts")
    expected, path = regard.from_pretrained(tmp_path), tmp_path / "config.json"
    settings = json.loads(path.read_text())
    scaling = settings.pop("rope_parameters")
    settings |= {"rope_theta": scaling.pop("rope_theta"), "rope_scaling": scaling}
    path.write_text(json.dumps(settings))
    source = make_inputs()[0]
    with torch.no_grad():
        assert torch.equal(regard.from_pretrained(tmp_path)(source), expected(source))


@pytest.mark.parametrize(
    "change",
    [
        {"make_self_attn": lambda: MultiHead(16, 2, score=Rotary)},  # neighbors are pairs
        {"make_self_attn": lambda: MultiHead(16, 2, score=Rotary(interleaved=False, rotary_dim=4))},
        {"make_self_attn": lambda: MultiHead(16, 2, score=Rotary(Dot(), interleaved=False))},
        {"make_self_attn": lambda: MultiHead(16, 2, bias=False, out_bias=True, score=Rotary(interleaved=False))},
        {"make_positions": lambda: Learned(9, 16)},
        {"make_norm": lambda: torch.nn.LayerNorm(16)},
        {"make_feed_forward": lambda: FeedForward(16, 24)},
        {"norm_first": False},
        {"embed_scale": 4.0},
    ],
)
def test_a_model_without_a_layout_is_refused(change):
    options = {"make_self_attn": lambda: MultiHead(16, 2, score=Rotary(interleaved=False)), "embed_scale": 1.0}
    options |= {"make_norm": lambda: torch.nn.RMSNorm(16, 1e-6), "make_positions": lambda: None}
    options |= {"make_feed_forward": lambda: FeedForward(16, 24, gated=True, bias=False)}
    config, _ = to_transformers(CausalLM(VOCAB, embed_dim=16, num_heads=2, num_layers=1, **options))
    assert config["model_type"] == "llama"
    with pytest.raises(ExportError, match="this model differs"):
        to_transformers(CausalLM(VOCAB, embed_dim=16, num_heads=2, num_layers=1, **options | change))
    with pytest.raises(ExportError, match="gpt2"):
        to_transformers(CausalLM(VOCAB, embed_dim=16, num_heads=2, num_layers=1, window_size=3))


def make_t5(**changes):
    bias = {side: RelativeBias(2, 8, 9, side == "encoder") for side in ("encoder", "decoder")}
    options = {"make_positions": lambda: None, "make_norm": lambda: torch.nn.RMSNorm(12, 1e-6), "embed_scale": 1.0}
    options |= {"make_feed_forward": lambda: FeedForward(12, 24, bias=False), "tie_embeddings": "inputs"}
    options |= {"make_self_attn": lambda: MultiHead(12, 2, bias=False, score=Dot() + bias["encoder"])}
    options |= {"make_decoder_self_attn": lambda: MultiHead(12, 2, bias=False, score=Dot() + bias["decoder"])}
    options |= {"make_cross_attn": lambda: MultiHead(12, 2, bias=False, score=Dot()), "norm_first": True}
    return Transformer(VOCAB, VOCAB, embed_dim=12, num_heads=2, num_encoder_layers=2, **options | changes)


@pytest.mark.parametrize(
    "change",
    [
        {"make_self_attn": lambda: MultiHead(12, 2, bias=False, score=Dot() + RelativeBias(2, 8, 9))},  # one a layer
        {"make_decoder_self_attn": None},  # that of the encoder
        {"make_cross_attn": lambda: MultiHead(12, 2, bias=False)},
        {"make_cross_attn": lambda: MultiHead(12, 2, score=Dot())},
        {"make_norm": lambda: torch.nn.LayerNorm(12)},
        {"make_norm": lambda: ScaledRMSNorm(12, scale=0.5)},
        {"make_feed_forward": lambda: FeedForward(12, 24)},
        {"tie_embeddings": "output"},
        {"norm_first": False},
        {"make_positions": None},
        {"output_bias": True},
    ],
)
def test_a_transformer_without_the_layout_of_t5_is_refused(change):
    model = make_t5()
    config, weights = to_transformers(model)
    assert (config["model_type"], config["scale_decoder_outputs"]) == ("t5", False)
    assert torch.equal(weights["lm_head.weight"], model.lm_head.weight)
    with pytest.raises(ExportError, match=r"t5 has a RelativeBias .* this model differs"):
        to_transformers(make_t5(**change))


def test_embeddings_of_the_inputs_are_one_weight():
    with pytest.raises(regard.errors.UsageError, match="tie_embeddings='inputs' needs one vocabulary"):
        Transformer(11, 13, tie_embeddings="inputs")
    model = Transformer(11, 11, embed_dim=8, num_heads=2, num_encoder_layers=1, tie_embeddings="inputs")
    assert model.src_embed.weight is model.tgt_embed.weight is not model.lm_head.weight
    with pytest.raises(ExportError, match="marian has tie_embeddings=none or output or all"):
        to_transformers(model)


def test_a_window_is_the_last_tokens():
    with pytest.raises(regard.errors.UsageError, match="window_size must be at least 1"):
        CausalLM(VOCAB, window_size=0)
    model = CausalLM(VOCAB, embed_dim=16, num_heads=2, num_layers=1, window_size=2).eval()
    with regard.watch(model) as records, torch.no_grad():
        model(torch.randint(VOCAB, (1, 4)))
    visible = records[0].weights[0, 0] > 0
    assert visible.tolist() == [[key in (query - 1, query) for key in range(4)] for query in range(4)]


def test_fused_decoding_of_learned_positions_ends_with_the_table(tmp_path):
    make_checkpoint(tmp_path, "bart", max_position_embeddings=4)
    model = regard.from_pretrained(tmp_path)
    with torch.no_grad():
        state = model.start_decoding(torch.tensor([[5, 6, 7]]), torch.tensor([3]))
        for _ in range(4):
            state.step(torch.tensor([5]))
        with pytest.raises(regard.errors.UsageError, match=r"positions must be in 0\.\.3"):
            state.step(torch.tensor([5]))


def test_formats_of_weights(tmp_path):
    """PyTorch's own format, weights in several files, names of 2018, and no prefix."""
    theirs = make_checkpoint(tmp_path / "a", "bert, masked")
    expected = regard.from_pretrained(tmp_path / "a").state_dict()
    state = {
        key.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): one
        for key, one in theirs.state_dict().items()
    }
    state |= {"cls.seq_relationship.weight": torch.zeros(2, 16), "bert.pooler.dense.weight": torch.zeros(16, 16)}
    state |= {"cls.seq_relationship.bias": torch.zeros(2), "bert.pooler.dense.bias": torch.zeros(16)}
    (tmp_path / "a" / "model.safetensors").unlink()
    torch.save(state, tmp_path / "a" / "pytorch_model.bin")
    old = regard.from_pretrained(tmp_path / "a")
    assert isinstance(old, BertForMaskedLM)
    assert all(torch.equal(tensor, old.state_dict()[key]) for key, tensor in expected.items())
    theirs.save_pretrained(tmp_path / "b", max_shard_size="5KB")
    assert (tmp_path / "b" / "model.safetensors.index.json").exists()
    sharded = regard.from_pretrained(tmp_path / "b").state_dict()
    assert all(torch.equal(tensor, sharded[key]) for key, tensor in expected.items())


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("gpt2", {"activation_function": "tanh"}, "activation_function='tanh'"),
        ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx=True"),
        ("bert", {"position_embedding_type": "relative_key"}, "position_embedding_type='relative_key'"),
        ("bert", {"is_decoder": True}, "is_decoder=True"),
        ("marian", {"normalize_embedding": True}, "normalize_embedding=True"),
        ("marian", {"decoder_attention_heads": 4}, "decoder_attention_heads=4"),
        ("bart", {"sliding_window": 7}, "field sliding_window=7"),
        ("llama", {"rope_parameters": {"rope_type": "longrope", "factor": 2.0}}, "unknown rope_type 'longrope'"),
        ("llama", {"rope_parameters": {"rope_theta": 9.0, "partial_rotary_factor": 0.5}}, "partial_rotary_factor"),
        ("llama", {"rope_parameters": "yarn"}, "rope_parameters must be an object"),
        ("llama", {"sliding_window": 4}, "field sliding_window=4"),
        ("qwen2, window", {"layer_types": ["full_attention", "sliding_attention"]}, "a window in all layers"),
        ("mistral", {"attention_bias": True}, "field attention_bias=True"),
        ("t5", {"feed_forward_proj": "gated-tanh"}, "feed_forward_proj='gated-tanh'"),
        ("t5", {"dense_act_fn": "silu"}, "dense_act_fn='silu'"),
        ("t5", {"is_decoder": True}, "field is_decoder=True"),
        ("bart", {"d_model": "16"}, "d_model must be a whole number"),
        ("bert", {"model_type": "mamba"}, "model_type='mamba'; regard loads t5, marian"),
    ],
)
def test_a_setting_that_regard_does_not_compute_is_refused(name, change, words, tmp_path):
    make_checkpoint(tmp_path, name)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(UnsupportedError) as caught:
        regard.from_pretrained(tmp_path)
    assert words in str(caught.value)


def test_weights_that_do_not_fit_are_refused(tmp_path):
    theirs = make_checkpoint(tmp_path, "marian")
    (tmp_path / "model.safetensors").unlink()
    state = theirs.state_dict()
    cases = {
        "has no weight": {key: one for key, one in state.items() if "layers.0.fc1" not in key},
        "does not know": state | {"model.encoder.layers.0.gate.weight": torch.ones(2)},
        "must be a copy": state | {"lm_head.weight": state["lm_head.weight"] + 1},
        "sines and cosines": state | {"model.encoder.embed_positions.weight": torch.ones(64, 16)},
        "does not fit": state | {"model.encoder.layers.0.fc1.bias": torch.ones(7)},
    }
    for words, weights in cases.items():
        torch.save(weights, tmp_path / "pytorch_model.bin")
        with pytest.raises(WeightsMismatchError, match=words):
            regard.from_pretrained(tmp_path)


def test_a_file_that_would_run_code_is_not_run(tmp_path):
    make_checkpoint(tmp_path, "bert")
    (tmp_path / "model.safetensors").unlink()

    class Malicious:
        def __reduce__(self):
            return (open, (str(tmp_path / "ran"), "w"))

    torch.save({"a": Malicious()}, tmp_path / "pytorch_model.bin")
    with pytest.raises(regard.errors.RunFormatError):
        regard.from_pretrained(tmp_path)
    assert not (tmp_path / "ran").exists()
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "../secret.safetensors"}}))
    with pytest.raises(regard.errors.RunFormatError, match="not in the folder"):
        regard.from_pretrained(tmp_path)


def test_names(tmp_path, monkeypatch):
    with pytest.raises(RunNotFoundError, match=r"config\.json is missing"):
        regard.from_pretrained(tmp_path)
    with pytest.raises(RunNotFoundError, match="there is no folder"):
        regard.from_pretrained(tmp_path / "missing")
    hub = pytest.importorskip("huggingface_hub")

    def refuse(*args, **kwargs):
        raise OSError("no connection")

    monkeypatch.setattr(hub, "snapshot_download", refuse)
    with pytest.raises(DownloadError, match="no connection"):
        regard.from_pretrained("someone/model")
