"""Small translators of many architectures, trained for a few steps, for the tests of engines."""

from functools import cache
from random import Random

import torch

from regard.data.pair_batches import PairBatch
from regard.data.strings import Reverse
from regard.data.tokenizer import Tokenizer
from regard.tasks import Translator, make_config
from regard.tasks.translation.task import TranslationProcessor, build_loss, build_model
from regard.training.trainer import Objective

LETTERS = "abcdefgh"
TEXTS = ["abc", "h", "gfedcba", "", "aa", "badcafe", "abc", "hgfedcbaabcdefgh"]
TRANSFORMERS = {
    "post": ["model=transformer", "num_heads=2", "num_layers=2", "dropout=0"],
    "pre": [
        "model=transformer",
        "num_heads=4",
        "num_layers=1",
        "norm_first=on",
        "tie_embeddings=all",
        "shared_vocab=on",
        "dropout=0",
    ],
    "tie_embeddings": [
        "model=transformer",
        "num_heads=1",
        "num_layers=1",
        "tie_embeddings=output",
        "ffn_dim=24",
        "dropout=0",
    ],
}
RECURRENT = {
    "additive": ["tie_embeddings=output"],
    "luong": ["decoder_type=luong", "input_feeding=on", "score=dot", "cell_type=lstm", "num_layers=2"],
    "unidirectional": ["bidirectional=off", "score=energy", "normalize=temperature(2)"],
    "deep": ["score=concat(2)", "num_layers=2", "decoder_type=luong"],
    "concat": ["score=concat", "embed_dim=12", "encoder_hidden_dim=5"],
    "local-m": ["attention_scope=local-m", "score=scaleddot", "window_radius=2"],
    "local-p": ["attention_scope=local-p", "score=bilinear", "decoder_type=luong", "window_radius=2"],
    "none": ["attention_scope=none"],
    "zero": ["init_hidden=zero", "readout_type=tanh", "num_layers=2"],
    "last": ["init_hidden=last", "readout_type=linear", "cell_type=lstm", "num_layers=2"],
    "per-layer": ["init_hidden=per-layer", "decoder_type=luong", "input_feeding=on", "cell_type=lstm", "num_layers=2"],
    "average_last": ["score=constant", "normalize=sigmoid", "cell_type=lstm"],
}
ARCHITECTURES = {**TRANSFORMERS, **RECURRENT}


@cache
def translator(architecture: str) -> Translator:
    torch.manual_seed(0)
    config = make_config("reverse", ["hidden_dim=16", "embed_dim=16", "max_length=20", *ARCHITECTURES[architecture]])
    tokenizer = Tokenizer.train([LETTERS], model_type="char", vocab_size=50)
    objective = Objective(
        build_model(config, len(tokenizer), len(tokenizer)), build_loss(config.replace(label_smoothing=0.0))
    ).train()
    optimizer = torch.optim.Adam(objective.parameters(), lr=1e-2)
    strings = Reverse(alphabet=LETTERS, max_length=8)
    for step in range(50 if architecture in TRANSFORMERS else 8):
        pairs = strings.sample(Random(step), 16)
        batch = PairBatch.from_pairs([(tokenizer.encode(pair.source), tokenizer.encode(pair.target)) for pair in pairs])
        optimizer.zero_grad()
        (objective(batch).total / batch.num_tokens).backward()
        optimizer.step()
    return Translator(objective.model, TranslationProcessor(tokenizer, tokenizer), config)
