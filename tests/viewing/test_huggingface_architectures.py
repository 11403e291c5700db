"""`attn_implementation="regard"` on every architecture of transformers: equal to eager attention, or refused."""

import pytest

pytest.importorskip("transformers")

from regard.viewing.huggingface import register_huggingface
from tests.viewing.huggingface_check import REFUSED, check
from tests.viewing.huggingface_models import OVERRIDES, list_architectures

pytestmark = pytest.mark.filterwarnings("ignore")
# They have attention code of their own: equal to eager attention, but they cannot be watched.
OWN_CODE = (
    "big_bird", "bloom", "canine", "codegen", "convbert", "deberta-v2", "gpt_neox_japanese", "ibert", "led",
    "longformer", "luke", "megatron-bert", "mpnet", "mpt", "mvp", "rembert", "roformer", "squeezebert", "tapas",
    "trocr", "visual_bert", "xglm",
)  # fmt: skip
NOT_SUPPORTED = ("falcon", "gpt_neo", "gptj", "inkling2_text")
WATCHED = (
    "align_text_model", "bart", "bert", "clip", "deepseek_v32", "gemma2", "gemma3_text", "gpt2", "gpt_oss",
    "granite_swa", "llama", "mistral", "modernbert", "opt", "phi4_multimodal_vision", "qwen2_vl", "qwen3_next", "t5",
    "vit", "wav2vec2", "whisper",
)  # fmt: skip
NAMES = (*OWN_CODE, *NOT_SUPPORTED, *WATCHED)


@pytest.fixture(autouse=True)
def _quiet(caplog):
    register_huggingface()
    caplog.set_level("CRITICAL")


@pytest.mark.parametrize("name", NAMES)
def test_representative_architectures(name):
    result = check(name, OVERRIDES)
    assert result.is_right, result
    assert (result.logits == REFUSED) == (name in NOT_SUPPORTED), result
    assert (result.watched == REFUSED) == (name not in WATCHED), result


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in list_architectures() if name not in NAMES])
def test_every_architecture(name):
    try:
        result = check(name, OVERRIDES)
    except LookupError as error:
        pytest.skip(f"cannot be built: {error}")
    assert result.is_right, result
