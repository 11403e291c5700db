"""Small random models of every architecture of transformers, made by shrinking its default config."""

import contextlib
import copy
import gc
import importlib
import inspect
import itertools
import re
import warnings

import torch

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import transformers
    from transformers.models.auto import modeling_auto
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

MAX_PARAMETERS = 60_000_000
LENGTH, BATCH, VOCAB, HIDDEN, HEADS, HEAD_DIM = 8, 2, 120, 64, 4, 16
# The mappings of model classes, the most telling first: logits of every position, then hidden states.
KINDS = (
    "CAUSAL_LM", "SEQ_TO_SEQ_CAUSAL_LM", "MULTIMODAL_LM", "IMAGE_TEXT_TO_TEXT", "SPEECH_SEQ_2_SEQ", "BASE", "MASKED_LM",
    "PRETRAINING", "IMAGE_CLASSIFICATION", "OBJECT_DETECTION", "DEPTH_ESTIMATION", "KEYPOINT_DETECTION",
    "SEMANTIC_SEGMENTATION", "UNIVERSAL_SEGMENTATION", "MASK_GENERATION", "IMAGE_TO_IMAGE", "TEXT_TO_WAVEFORM",
    "TEXT_TO_SPECTROGRAM", "TIME_SERIES_PREDICTION", "BACKBONE", "VISION_2_SEQ", "CTC", "RNNT", "TDT",
)  # fmt: skip
# (pattern of a name, largest value); the first pattern that is found in the name of an integer is used
SIZES = (
    (r"(vocab|vocab_size)$", VOCAB),
    (r"(num|n)_(key_value|kv|query)_(heads|groups)$|num_kv_heads|num_key_value_heads", 2),
    (r"experts_per_tok|num_selected_experts|moe_topk|moe_k|top_k_experts", 2),
    (r"(num|n).*experts$|moe_num_experts", 4),
    (r"(n_group|topk_group|num_expert_group)$", 1),
    (r"head_dim$|head_size$|d_kv$|kv_channels$|attention_key_channels", HEAD_DIM),
    (r"heads?$|nhead$", HEADS),
    (r"(layers|n_layer|num_blocks|depth|num_hidden_groups|blocks_per_group|num_loops)$", 2),
    (r"_rank$", HEAD_DIM),
    (r"^(moe_)?intermediate|intermediate_size|ffn|_ff$|n_inner|inner_dim|mlp_dim|d_inner", 2 * HIDDEN),
    (r"hidden_size|d_model|n_embd|embed_dim|^dim$|hidden_dim|projection_dim|embedding_size|^width$|d_embed", HIDDEN),
    (r"emb_dim|_hidden|output_dim|decoder_dim", HIDDEN),
    (r"max.*position|n_positions|n_ctx|max_seq_len", 512),
    (r"image_size$", 64),
    (r"sliding_window$|attention_chunk_size|^local_attention$", 4),
)
IMAGES = tuple(pair for pair in SIZES if "image_size" in pair[0])
FEW_LAYERS = tuple(
    pair for pair in SIZES if any(name in pair[0] for name in ("vocab", "n_layer", "experts", "sliding"))
)
# What the default config lacks: arguments of the config ("init") and attributes to set after it was made small.
OVERRIDES = {
    **{name: {"init": {"prediction_length": 4, "context_length": 16, "lags_sequence": [1, 2]}} for name in (
        "autoformer", "informer", "time_series_transformer")},
    "bamba": {"init": {"attn_layer_indices": [1], "num_hidden_layers": 2}, "mamba_n_heads": 8, "mamba_d_head": 16},
    "jamba": {"init": {"attn_layer_period": 2, "attn_layer_offset": 1, "num_hidden_layers": 2}},
    "granitemoehybrid": {"init": {"layer_types": ["mamba", "attention"], "num_hidden_layers": 2},
                         "mamba_n_heads": 8, "mamba_d_head": 16},
    "mamba2": {"num_heads": 8},
    "falcon_h1": {"mamba_d_ssm": 128, "mamba_n_heads": 8, "mamba_d_head": 16, "mamba_chunk_size": 8},
    **{name: {"dropout_rate": 0.0} for name in ("t5gemma2_text", "t5gemma2_encoder", "t5gemma2_decoder")},
    "recurrent_gemma": {"init": {"block_types": ["recurrent", "attention"], "num_hidden_layers": 2}},
    "deepseek_v2": {"init": {"num_experts_per_tok": 2, "n_routed_experts": 4, "topk_group": 1, "n_group": 1}},
    "dots1": {"init": {"n_routed_experts": 4, "n_shared_experts": 1}},
    **{name: {"init": {"head_dim": 16}} for name in (
        "hunyuan_v1_dense", "hunyuan_v1_moe", "hunyuan_vl", "hunyuan_vl_text", "ministral")},
    "esm": {"init": {"vocab_size": 33, "pad_token_id": 1, "mask_token_id": 32}},
    "lfm2_moe": {"init": {"layer_types": ["conv", "full_attention"], "num_hidden_layers": 2}},
    "nemotron": {"init": {"num_key_value_heads": 2}},
    "xmod": {"default_language": "en_XX"},
    "step3p5": {"init": {"sliding_window": 4}},
    "chameleon": {"vocabulary_map": {"<image>": 99}},
    "moshi_depth": {"init": {"audio_vocab_size": 60}},
    "zamba": {"init": {"num_hidden_layers": 6}},
    "reformer": {"axial_pos_embds": False, "init": {"attn_layers": ["local", "lsh"]}},
    "perceiver": {"init": {"num_latents": 8, "d_latents": 32, "d_model": 32, "max_position_embeddings": 64}},
    "gemma3n_text": {"num_kv_shared_layers": 0},
    "gemma4_unified_assistant": {"num_kv_shared_layers": 0},
}  # fmt: skip


def list_architectures():
    """The names of all architectures of the installed transformers."""
    return sorted(CONFIG_MAPPING_NAMES)


def find_class(name, kinds=KINDS):
    """The class of the model to build for an architecture; None if there is none."""
    is_encoder = name in _names("MASKED_LM")  # which may also be a decoder
    has_images = name in _names("IMAGE_TEXT_TO_TEXT") or name in _names("MULTIMODAL_LM")  # and a text model inside
    for kind in kinds:
        if kind == "CAUSAL_LM" and (is_encoder or has_images):
            continue
        names = _names(kind).get(name)
        if names:
            return getattr(transformers, names if isinstance(names, str) else names[0], None)
    config_class = transformers.CONFIG_MAPPING[name]
    modeling = importlib.import_module(config_class.__module__.replace(".configuration_", ".modeling_"))
    classes = [
        kind
        for kind in vars(modeling).values()
        if isinstance(kind, type)
        and issubclass(kind, transformers.PreTrainedModel)
        and kind.config_class is config_class
        and not kind.__name__.endswith("PreTrainedModel")
    ]
    return classes[0] if classes else None


def _names(kind):
    name = "MODEL_MAPPING_NAMES" if kind == "BASE" else f"MODEL_FOR_{kind}_MAPPING_NAMES"
    return getattr(modeling_auto, name, {})


def shrink(config, names, done=()):
    """Make a config small, with all its nested configs."""
    for key in getattr(config, "sub_configs", {}) or {}:
        part = getattr(config, key, None)
        if part is not None and not any(part is other for other in done):
            shrink(part, names, (*done, part))
    special = VOCAB
    for key, value in list(vars(config).items()):
        if key.startswith("_"):
            continue
        if isinstance(value, int) and not isinstance(value, bool):
            if re.search(r"(token|pad|bos|eos|sep|start|index)_?(id|index)$|^(pad|bos|eos)_token_id$", key):
                if value >= VOCAB:
                    special -= 1
                    _set(config, key, special)
                continue
            largest = next((size for pattern, size in names if re.search(pattern, key)), value)
            _set(config, key, min(value, largest))
        elif isinstance(value, (list, tuple)) and value and all(type(one) is int for one in value):
            _shrink_list(config, key, list(value), names is SIZES)
    counts = [getattr(config, key, None) for key in ("num_hidden_layers", "num_layers", "n_layer")]
    layers = next((count for count in counts if isinstance(count, int) and count), 2)
    for key, value in list(vars(config).items()):
        if isinstance(value, list) and re.search("(layer_types|layers_block_type|mlp_types|attention_types)$", key):
            _set(config, key, _first_of_each(value, layers))
    return config


def _first_of_each(values, count):
    """As many values as there are layers, with as many different ones as possible."""
    different = [value for index, value in enumerate(values) if value not in values[:index]]
    return (different + values)[:count] if len(different) < count else different[:count]


def _shrink_list(config, key, value, narrow):
    if re.search(r"depths$|^layers$|num_blocks|blocks$|encoder_layers|stage_layers|layer_repeats", key):
        _set(config, key, [min(one, 1) for one in value])
    elif re.search(r"patch|image|pool", key) or not narrow:
        return
    elif re.search(r"hidden_sizes|dims|channels|conv_dim$|embed_dim|sizes$", key):
        _set(config, key, [max(8, one // 8) if one > 8 else one for one in value])


def _set(config, key, value):
    with contextlib.suppress(Exception):  # a property, or refused by the config itself
        setattr(config, key, value)


def fix(config):
    """Make sizes that depend on each other fit."""
    for key in ("rope_scaling", "rope_parameters"):
        options = getattr(config, key, None)
        for one in (options, *options.values()) if isinstance(options, dict) else ():
            if isinstance(one, dict) and "rope_type" in one:
                half = int(HEAD_DIM * (one.get("partial_rotary_factor") or 1)) // 2
                one["mrope_section"] = [half // 2, half // 4, half // 4]
    for key in ("pad_token_id", "bos_token_id", "eos_token_id"):
        if not hasattr(config, key):
            _set(config, key, None)
    if "kv_lora_rank" in vars(config) and config.kv_lora_rank:  # every head has keys of its own
        _set(config, "num_key_value_heads", config.num_attention_heads)
        _set(config, "qk_head_dim", config.qk_nope_head_dim + config.qk_rope_head_dim)
    if getattr(config, "rotary_dim", None):
        _set(config, "rotary_dim", min(config.rotary_dim, HEAD_DIM))


def build_config(name, overrides, names):
    """A config of an architecture with smaller values of the named kinds."""
    options = dict(overrides.get(name, {}))
    config = transformers.CONFIG_MAPPING[name](**options.pop("init", {}))
    shrink(config, names)
    for part in _nested(config):
        fix(part)
    for key, value in options.items():
        setattr(config, key, value)
    return config


def build_any(name, overrides):
    """A small random model with eager attention, its class, config and inputs; LookupError if none could be built."""
    try:
        model_class, errors = find_class(name), []
    except ImportError as error:
        raise LookupError(str(error)) from error
    if model_class is None:
        raise LookupError("no model class")
    for names in (SIZES, FEW_LAYERS + IMAGES, FEW_LAYERS):
        try:
            config = build_config(name, overrides, names)
            with torch.device("meta"):
                count = sum(part.numel() for part in model_class._from_config(copy.deepcopy(config)).parameters())
            if count > MAX_PARAMETERS:
                raise ValueError(f"{count:,} parameters")
            model = build(model_class, config, "eager")
        except Exception as error:
            errors.append(f"{type(error).__name__}: {error}")  # the error itself would keep the model alive
            gc.collect()
            continue
        for inputs in list_inputs(model, config):
            try:
                with torch.no_grad():
                    model(**inputs)
                return model, model_class, config, inputs
            except Exception as error:
                errors.append(f"{type(error).__name__}: {error}")
    raise LookupError(errors[0] if errors else "no inputs are known")


def build(model_class, config, implementation, state=None):
    """A model with random weights that make its attention matter, or with the given ones."""
    torch.manual_seed(0)
    model = model_class._from_config(copy.deepcopy(config), attn_implementation=implementation).float().eval()
    if state is None:
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() > 1:
                    parameter.copy_(torch.randn_like(parameter) * (1.5 / parameter[0].numel() ** 0.5))
                else:
                    parameter.nan_to_num_(0.0, 0.0, 0.0).clamp_(-5, 5).add_(torch.randn_like(parameter) * 0.1)
    else:
        model.load_state_dict(state)
    return model


def list_inputs(model, config):
    """Candidates of inputs, the smallest first: a model takes one of them."""
    parameters = inspect.signature(model.forward).parameters
    main = getattr(model, "main_input_name", "input_ids")
    main = main if isinstance(main, str) else main[0]
    required = tuple(key for key in parameters if parameters[key].default is inspect.Parameter.empty)
    texts = ("input_ids", "decoder_input_ids")
    extras = ("pixel_values", "input_features", "input_values", "bbox")
    choices = [
        ("input_ids",),
        (main,),
        (main, "decoder_input_ids"),
        texts,
        required,
        (*required, main),
        texts + required,
    ]
    choices += [choice for extra in extras for choice in (("input_ids", extra), (*texts, extra), (*required, extra))]
    if getattr(config, "is_encoder_decoder", False):
        choices.sort(key=lambda keys: "decoder_input_ids" not in keys)
    candidates = []
    for keys in choices:
        keys = tuple(dict.fromkeys(key for key in keys if key in parameters))
        torch.manual_seed(1)
        variants = [[(key, value) for value in make_inputs(key, config, parameters)] for key in keys]
        for one in itertools.product(*(variant for variant in variants if variant)):
            shapes = {key: value.shape for key, value in one}
            if one and shapes not in [{key: value.shape for key, value in other.items()} for other in candidates]:
                candidates.append(dict(one))
    return candidates[:40]


def make_inputs(key, config, parameters):
    """Random values for an argument of a model, in the shapes that models of this kind take."""
    vision = next(
        (part for part in _nested(config) if hasattr(part, "patch_size") or hasattr(part, "image_size")), config
    )
    size = getattr(vision, "image_size", None) or 64
    height, width = tuple(size)[-2:] if isinstance(size, (list, tuple)) else (size, size)
    channels = _get(config, 3, "num_channels", "in_channels", "in_chans")
    mels = _get(config, 80, "num_mel_bins", "input_feat_per_channel", "feature_projection_input_dim", "input_dim")
    frames = 2 * _get(config, 64, "max_source_positions")
    if key in ("input_ids", "decoder_input_ids", "text_input_ids"):
        yield torch.randint(
            10,
            min(VOCAB - 20, _get(config, VOCAB, "vocab_size") - 4),
            (BATCH, LENGTH - 2 * (key == "decoder_input_ids")),
        )
    elif key in ("hidden_states", "pixel_values") and "grid_thw" in parameters:
        patch, steps = _get(vision, 14, "patch_size"), _get(vision, 1, "temporal_patch_size")
        yield torch.randn(BATCH * 16, channels * steps * patch * patch)
    elif key in ("grid_thw", "image_grid_thw"):
        yield torch.tensor([[1, 4, 4]] * BATCH)
    elif key in ("pixel_values", "pixel_values_videos", "image", "images"):
        if "spatial_shapes" in parameters:
            yield torch.randn(BATCH, 16, channels * _get(vision, 16, "patch_size") ** 2)
        if key != "pixel_values_videos":
            yield torch.randn(BATCH, channels, height, width)
        yield torch.randn(BATCH, _get(vision, 2, "num_frames"), channels, height, width)
        yield torch.randn(BATCH, 2, channels, height, width)
        yield torch.randn(BATCH, channels, 224, 224)
    elif key == "input_values":
        yield torch.randn(BATCH, 4000)
        yield torch.randn(BATCH, _get(config, 128, "max_length"), mels)
        yield torch.randn(BATCH, 1, 4096)
    elif key == "input_features":
        yield torch.randn(BATCH, mels, frames)
        yield torch.randn(BATCH, 64, mels)
        yield torch.randn(BATCH, 1, _get(config, 64, "spec_size"), mels)
    elif key == "bbox":
        yield torch.randint(0, 100, (BATCH, LENGTH, 2)).repeat(1, 1, 2).sort(-1).values
        yield torch.rand(BATCH, LENGTH, 8)
    elif key == "inputs_embeds":
        yield torch.randn(BATCH, LENGTH, _get(config, HIDDEN, "hidden_size", "d_model"))
    elif key == "query_embeds":
        yield torch.randn(BATCH, LENGTH, _get(config, HIDDEN, "hidden_size"))
    elif key == "flattened_patches":
        yield torch.rand(BATCH, LENGTH, 2 + 3 * _get(config, 16, "patch_size") ** 2)
    elif key == "pixel_attention_mask":
        yield torch.ones(BATCH, 16)
    elif key == "spatial_shapes":
        yield torch.tensor([[4, 4]] * BATCH)
    elif key in ("past_values", "past_observed_mask", "past_time_features") and "past_time_features" in parameters:
        length = _get(config, 16, "context_length") + max(config.lags_sequence)
        values = torch.randn(BATCH, length, config.num_time_features + config.num_dynamic_real_features)
        yield {"past_values": values[..., 0] if values.shape[2] else torch.randn(BATCH, length),
               "past_observed_mask": torch.ones(BATCH, length), "past_time_features": values}[key]  # fmt: skip
    elif key == "past_values":
        yield torch.randn(BATCH, _get(config, 32, "context_length"))
        yield torch.randn(BATCH, _get(config, 32, "context_length"), _get(config, 1, "num_input_channels"))
    elif key == "attention_mask" and parameters[key].default is inspect.Parameter.empty:
        yield torch.ones(BATCH, LENGTH)
    elif key == "input_features_mask":
        yield torch.ones(BATCH, frames, dtype=torch.long)


def _nested(config):
    """A config and its nested configs, the vision config first."""
    parts = [getattr(config, key, None) for key in getattr(config, "sub_configs", {}) or {}]
    parts = [part for part in parts if part is not None]
    return [*[part for part in parts if hasattr(part, "image_size")], config, *parts]


def _get(config, default, *keys):
    for part in _nested(config):
        for key in keys:
            value = getattr(part, key, None)
            if type(value) is int:
                return value
    return default
