"""Compare a model of transformers under `attn_implementation="regard"` with its eager attention."""

import contextlib
import inspect
import re
import warnings
from dataclasses import dataclass, fields

import torch

from regard.errors import UnsupportedError
from regard.viewing import watch
from regard.viewing.huggingface import huggingface_attention_modules, uses_attention_interface
from tests.viewing.huggingface_models import BATCH, LENGTH, build, build_any, transformers

TOLERANCE = 1e-5
EAGER_ADDS_BOOLEAN_MASK = ("grounding-dino", "mm-grounding-dino")  # of their text model: only sdpa is right
EQUAL, REFUSED, NONE = "equal", "refused", "-"
MASKS = {
    "left": torch.tensor([[0] * 3 + [1] * (LENGTH - 3), [1] * LENGTH]),
    "right": torch.tensor([[1] * (LENGTH - 3) + [0] * 3, [1] * LENGTH]),
}


@dataclass
class Comparison:
    """What was found for an architecture: "equal", "refused", "-" where it does not apply, or what is wrong."""

    name: str
    model: str
    logits: str = NONE
    padded: str = NONE
    gradient: str = NONE
    generate: str = NONE
    watched: str = NONE
    note: str = ""

    @property
    def is_right(self) -> bool:
        return all(is_right(getattr(self, one.name)) for one in fields(self)[2:7])


def is_right(result):
    return result in (EQUAL, REFUSED, NONE, "recorded", "partly")


def check(name, overrides):
    """Build an architecture with eager attention and, with the same weights, with regard's, and compare."""
    eager, model_class, config, inputs = build_any(name, overrides)
    result = Comparison(name, model_class.__name__)
    try:
        ours = build(model_class, config, "regard", eager.state_dict())
        with torch.no_grad():
            run(ours, inputs)
    except UnsupportedError as error:
        result.logits, result.watched, result.note = REFUSED, REFUSED, str(error)
        return result
    pairs = zip(run(eager, inputs), run(eager, inputs), strict=True)
    if not all(torch.allclose(one, other, rtol=0, atol=0, equal_nan=True) for one, other in pairs):
        result.note = "draws random numbers"
        return result
    compare(result, eager, ours, inputs)
    if not result.is_right:  # rounding errors that grow, or an error
        wide = {key: value.double() if value.is_floating_point() else value for key, value in inputs.items()}
        again = Comparison(result.name, result.model)
        with contextlib.suppress(RuntimeError):  # numbers of different widths in one operation
            compare(again, eager.double(), ours.double(), wide)
            result.note = "in float64"
            for one in fields(Comparison)[2:7]:
                if not is_right(getattr(result, one.name)):
                    setattr(result, one.name, getattr(again, one.name))
        eager, ours = eager.float(), ours.float()
    if not result.is_right and (eager._supports_sdpa or name in EAGER_ADDS_BOOLEAN_MASK):
        kind = {"": "eager", "text_config": "sdpa"} if name in EAGER_ADDS_BOOLEAN_MASK else "sdpa"
        theirs = build(model_class, config, kind, eager.state_dict())
        if measure(run(eager, inputs), run(theirs, inputs)) > TOLERANCE:
            compare(result, theirs, ours, inputs)
            result.note = "as sdpa: the eager and sdpa results of transformers differ"
    return result


def compare(result, eager, ours, inputs):
    """Fill the result of a model and its inputs."""
    result.logits = describe(measure(run(eager, inputs), run(ours, inputs)))
    result.padded, padded = compare_padded(eager, ours, inputs)
    batches = [(inputs, None), *padded]
    result.gradient = describe(max(compare_gradients(eager, ours, one, mask) for one, mask in batches))
    result.generate = compare_generation(eager, ours, inputs)
    result.watched, result.note = compare_watched(eager, ours, inputs)


def describe(difference):
    return EQUAL if difference <= TOLERANCE else f"differs by {difference:.0e}"


def run(model, inputs, mask=None):
    """The tensors of a model's output; of padded positions only the valid ones."""
    torch.default_generator.manual_seed(2)
    tensors = [tensor for tensor in flatten(model(**inputs)) if tensor.is_floating_point()]
    if mask is None:
        return tensors
    valid = [tensor[mask.bool()] for tensor in tensors if tensor.dim() > 1 and tensor.shape[:2] == mask.shape]
    return valid or tensors


def has_positions(model, inputs, mask):
    """Whether an output has a row for every position of the input."""
    with torch.no_grad():
        return any(tensor.dim() > 1 and tensor.shape[:2] == mask.shape for tensor in flatten(model(**inputs)))


def flatten(output):
    """All tensors of an output, but caches and attentions."""
    if isinstance(output, torch.Tensor):
        return [output]
    values = output
    if isinstance(output, dict):
        values = [value for key, value in output.items() if not re.search("past_key|attentions", key)]
    if not isinstance(values, (list, tuple)):
        return []
    return [tensor for value in values for tensor in flatten(value)]


def measure(theirs, ours):
    """The largest difference, relative to the largest value if that is above 1; NaN equals nothing."""
    if len(theirs) != len(ours):
        return float("inf")
    worst = 0.0
    for one, other in zip(theirs, ours, strict=True):
        is_comparable = one.shape == other.shape and not one.isnan().any() and not other.isnan().any()
        if not is_comparable or not torch.equal(one.isfinite(), other.isfinite()):
            return float("inf")
        one, other = (tensor.detach().double().where(tensor.isfinite(), 0.0) for tensor in (one, other))
        if one.numel():
            worst = max(worst, float((one - other).abs().max() / one.abs().max().clamp(min=1)))
    return worst


def compare_padded(eager, ours, inputs):
    """Compare batches that are padded on the left and on the right; also these inputs."""
    main = "input_ids" if "input_ids" in inputs else "input_values"
    parameters = inspect.signature(eager.forward).parameters
    if main not in inputs or "attention_mask" not in parameters:
        return NONE, []
    worst, used = 0.0, []
    for side, mask in MASKS.items():
        if inputs[main].dim() != 2 or (main == "input_ids" and inputs[main].shape != mask.shape):
            return NONE, []
        mask = mask if main == "input_ids" else mask.repeat_interleave(inputs[main].shape[1] // LENGTH, 1)
        padded = {**inputs, "attention_mask": mask}
        if main == "input_ids":
            padded[main] = inputs[main].where(mask.bool(), 1)
        try:
            theirs = run(eager, padded, mask)
        except Exception:
            continue
        if side == "left" and not has_positions(eager, padded, mask):
            continue  # what is pooled may come from a padded position, where eager attention is a mean of all values
        worst = max(worst, measure(theirs, run(ours, padded, mask)))
        used.append((padded, mask))
    return (describe(worst) if used else NONE), used


def compare_gradients(eager, ours, inputs, mask):
    gradients = []
    for model in (eager, ours):
        model.zero_grad()
        outputs = [tensor for tensor in run(model, inputs, mask) if tensor.requires_grad]
        if not outputs:
            return 0.0
        torch.default_generator.manual_seed(3)
        loss = sum((tensor * torch.randn_like(tensor)).where(tensor.isfinite(), 0.0).mean() for tensor in outputs)
        try:
            loss.backward()
        except (RuntimeError, AssertionError):
            if model is eager:
                return 0.0  # no gradients in eval mode
            raise
        gradients.append([part.grad for part in model.parameters() if part.grad is not None])
    eager.zero_grad(), ours.zero_grad()
    return measure(*gradients)


def compare_generation(eager, ours, inputs):
    """Generate 8 tokens greedily from a batch that is padded on the left."""
    if not eager.can_generate() or "input_ids" not in inputs or inputs["input_ids"].shape != (BATCH, LENGTH):
        return NONE
    inputs = {key: value for key, value in inputs.items() if not key.startswith("decoder_")}
    options = {"max_new_tokens": 8, "min_new_tokens": 8, "do_sample": False, "num_beams": 1, "use_cache": True,
               "output_logits": True, "return_dict_in_generate": True, "attention_mask": MASKS["left"]}  # fmt: skip
    results = []
    for model in (eager, ours):
        settings = model.generation_config
        if settings.pad_token_id is None:
            settings.pad_token_id = 0
        if getattr(model.config, "is_encoder_decoder", False) and settings.decoder_start_token_id is None:
            settings.decoder_start_token_id = 1
        torch.default_generator.manual_seed(2)
        try:
            results.append(model.generate(**inputs, **options))
        except Exception as error:
            if model is eager:
                return NONE
            return f"{type(error).__name__}: {error}"[:80]
    theirs, other = results
    if not isinstance(theirs, dict) or theirs.get("logits") is None:
        return NONE
    if not torch.equal(theirs["sequences"], other["sequences"]):
        return "other tokens"
    return describe(measure(list(theirs["logits"]), list(other["logits"])))


def compare_watched(eager, ours, inputs):
    """Watch a pass: the output does not change, and the weights are those of eager attention."""
    modules = huggingface_attention_modules(ours)
    is_watchable = any(uses_attention_interface(module) for module in modules)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if is_partly_eager(ours):  # parts that do not take over the setting of the whole model
            ours.set_attn_implementation("regard")
        plain = run(ours, inputs)
        try:
            with watch(ours) as records:
                watched = run(ours, inputs)
        except UnsupportedError as error:
            return (REFUSED if not is_watchable else "refused, but it uses the interface"), str(error)
        if any(not torch.equal(one, other) for one, other in zip(plain, watched, strict=True)):
            return "changes the output", ""
        if not records:
            return ("records nothing" if is_watchable else NONE), "" if is_watchable else "no attention"
        torch.default_generator.manual_seed(2)
        try:
            output = eager(**inputs, output_attentions=True)
            output.items()
        except Exception:
            return "recorded", "no attentions to compare with"
    named = [value for key, value in output.items() if "attentions" in key and value is not None]
    expected = [tensor for tensor in flatten(named) if is_weights(tensor)]
    missing = [one for one in expected if not any(has_weights(record.weights, one) for record in records)]
    if missing:
        is_partly = any(not uses_attention_interface(module) for module in modules)
        return ("partly" if is_partly else f"{len(missing)} of {len(expected)} weights differ"), ""
    return EQUAL if expected else "recorded", ""


def is_partly_eager(model):
    parts = [part for part in model.modules() if isinstance(part, transformers.PreTrainedModel)]
    return any(part.config._attn_implementation == "eager" for part in parts)


def is_weights(tensor):
    """Whether a tensor that a model calls attentions has the form of weights: some models return hidden states."""
    return tensor.dim() == 4 and bool((tensor >= 0).all() and (tensor.sum(-1) < 1 + TOLERANCE).all())


def has_weights(weights, expected):
    """Equal weights, or, where models report weights without the part of a sink, proportional ones."""
    if weights.shape != expected.shape:
        return False
    totals = weights.sum(-1, keepdim=True).clamp(min=1e-30)
    return any(float((one - expected).abs().max()) <= TOLERANCE for one in (weights, weights / totals))
