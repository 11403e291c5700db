"""Scores, normalizers and positions of `model=transformer`: each combination is trained and used, or refused."""

import pytest
import torch

import regard
from regard.data.pair_batches import PairBatch
from regard.decoding import DecodingConfig, decode
from regard.errors import ConfigError
from regard.export import export, open_export
from regard.models import Transformer
from regard.models.transformer_fast import fuse_decoder
from regard.tasks import get_recipe, get_task, make_config, train
from regard.tasks.mechanisms import NORMALIZERS, SCORES
from regard.tasks.translation.task import build_loss, build_model
from regard.training.trainer import Objective
from tests.tasks.letters import LETTERS

BATCH = PairBatch.from_pairs([([5, 6, 7], [4, 5]), ([8], [6, 7, 8]), ([4, 4, 9, 5, 6], [9])])
VOCAB_SIZE = 11
SMALL = ["model=transformer", "embed_dim=8", "num_heads=2", "num_layers=1", "ffn_dim=8", "max_length=6"]
POSITIONS = ("sinusoidal", "learned", "rotary", "alibi", "relative", "none")
KERNELS = ("Boxcar", "Epanechnikov")
ALL_KINDS = [
    ["self_score=additive", "score=bilinear", "positions=rotary"],
    ["self_normalize=sparsemax", "normalize=entmax(1.3)", "positions=alibi"],
    ["positions=learned", "score=location", "tie_embeddings=output"],
    ["positions=relative", "norm_first=on", "normalize=topk(2)"],
    ["positions=none", "self_score=cosine", "normalize=straight-through"],
]


def make(*overrides):
    """A model that would not be refused before a training."""
    torch.manual_seed(0)
    config = make_config("reverse", [*SMALL, *overrides])
    get_task("translation").validate(config, get_recipe("reverse").load_data(config))
    return build_model(config, VOCAB_SIZE, VOCAB_SIZE), build_loss(config)


def train_and_decode(*overrides):
    """Two steps of training, then greedy and beam search; beam size 1 and the forward pass agree with greedy."""
    model, loss = make(*overrides, "dropout=0.1")
    objective = Objective(model, loss)
    optimizer = torch.optim.SGD(objective.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        total = objective(BATCH).total
        total.backward()
        assert total.isfinite()
        assert all(p.grad.isfinite().all() for p in objective.parameters() if p.grad is not None)
        optimizer.step()
    objective.eval()
    with torch.no_grad():
        for method, beam_size in (("greedy", 1), ("beam", 3)):
            options = DecodingConfig(method=method, beam_size=beam_size, max_length=5)
            hypotheses = decode(model, BATCH.source, BATCH.source_lengths, options)
            assert all(torch.tensor(best[0].log_prob).isfinite() for best in hypotheses)
        check_steps(model)
    return model


def check_steps(model: Transformer) -> None:
    """Step by step, a decoder computes the logits of the forward pass."""
    target = BATCH.target[:, :-1]
    expected = model(BATCH.source, BATCH.source_lengths, target)
    state = model.start_decoding(BATCH.source, BATCH.source_lengths)
    logits = torch.stack([state.step(tokens) for tokens in target.unbind(1)], 1)
    torch.testing.assert_close(logits, expected, atol=1e-4, rtol=1e-4)
    assert state.weights().shape == BATCH.source.shape


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("positions", ["rotary", "relative"])
def test_every_score(score, positions):
    options = [f"score={score}", f"self_score={score}", f"positions={positions}"]
    if positions == "relative" and score in KERNELS:
        with pytest.raises(ConfigError, match="positions=relative adds a bias to real-valued scores"):
            make(*options)
    else:
        model = train_and_decode(*options)
        layer = model.decoder.layers[0]
        assert score in repr(layer.self_attn)
        assert type(layer.cross_attn.score).__name__ == score


@pytest.mark.parametrize("normalize", [name for name in NORMALIZERS if name not in ("kernel_sum", "Sample", "Gumbel")])
def test_every_normalizer(normalize):
    train_and_decode(f"normalize={normalize}", f"self_normalize={normalize}")


def test_random_and_kernel_normalizers():
    train_and_decode("score=boxcar(4)", "normalize=kernel_sum")
    train_and_decode("self_score=epanechnikov(4)", "self_normalize=kernel_sum")
    train_and_decode("normalize=gumbel(2)")


@pytest.mark.parametrize("positions", POSITIONS)
def test_every_kind_of_positions(positions):
    model = train_and_decode(f"positions={positions}", "norm_first=on", "num_layers=2")
    order_counts = positions != "none"  # without positions, the order of the source changes nothing
    with torch.no_grad():
        one = model.eval()(torch.tensor([[5, 6, 7]]), torch.tensor([3]), torch.tensor([[1]]))
        other = model(torch.tensor([[6, 5, 7]]), torch.tensor([3]), torch.tensor([[1]]))
    assert torch.allclose(one, other, atol=1e-6) != order_counts


def test_only_the_published_transformer_has_a_fused_decoder():
    with torch.no_grad():
        assert fuse_decoder(make()[0].eval()) is not None
        assert fuse_decoder(make("score=scaled-dot", "self_score=vaswani", "normalize=softmax")[0].eval()) is not None
        for options in ALL_KINDS:
            assert fuse_decoder(make(*options)[0].eval()) is None


def test_defaults_are_the_published_transformer():
    config = make_config("reverse", SMALL)
    assert (config.score, config.self_score, config.positions) == ("scaled-dot", "scaled-dot", "sinusoidal")
    torch.manual_seed(3)
    ours = build_model(config, VOCAB_SIZE, VOCAB_SIZE).state_dict()
    torch.manual_seed(3)
    plain = Transformer(
        VOCAB_SIZE, VOCAB_SIZE, embed_dim=8, num_heads=2, num_encoder_layers=1, ffn_dim=8, dropout=config.dropout
    ).state_dict()
    assert ours.keys() == plain.keys()
    assert all(torch.equal(ours[name], plain[name]) for name in plain)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["positions=rotary", "embed_dim=6"], "positions=rotary needs heads of an even size"),
        (["positions=alibi", "self_score=boxcar"], "positions=alibi adds a bias to real-valued scores"),
        (["self_score=dott"], "invalid value 'dott' for self_score: did you mean dot"),
        (["self_normalize=spasemax"], "for self_normalize: did you mean sparsemax"),
        (["positions=rotery"], "did you mean rotary?"),
        (["score=dot", "normalize=kernel_sum"], "do not go together"),
        (["self_score=epanechnikov", "self_normalize=softmax"], "do not go together"),
        (["normalize=sample"], "for normalize: needs model=rnn"),
        (["self_normalize=hard attention"], "for self_normalize: needs model=rnn"),
        (["score=location(5)"], "needs a number of at least 14"),
        (["attention_scope=local-p"], "for attention_scope: needs model=rnn"),
        (["model=rnn", "positions=rotary"], "for positions: needs model=transformer"),
        (["model=rnn", "self_score=dot"], "for self_score: needs model=transformer"),
        (["model=rnn", "self_normalize=sparsemax"], "for self_normalize: needs model=transformer"),
    ],
)
def test_contradictions_are_refused_before_a_folder_is_made(tmp_path, overrides, message):
    with pytest.raises(ConfigError) as caught:
        train("reverse", tmp_path / "run", [*SMALL, *overrides], log=lambda line: None)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("overrides", ALL_KINDS, ids=" ".join)
def test_a_run_is_saved_loaded_used_and_exported(tmp_path, monkeypatch, overrides):
    monkeypatch.setattr("regard.tasks.translation.data.VOCAB_SAMPLE_SIZE", 200)
    quick = ["steps=2", "validate_every=2", "batch_tokens=60", "monitor=loss", "average_last=0"]
    train("reverse", tmp_path / "run", [*SMALL, *quick, *overrides], log=lambda line: None)
    translator = regard.load(tmp_path / "run")
    texts = [LETTERS[:5], LETTERS[3:6]]
    expected = translator.translate(texts, beam_size=2)
    alignment = translator.align(texts[0], "cba").weights
    assert alignment.shape[:2] == (1, 2)  # layers and heads
    export(tmp_path / "run", to="safetensors", out=tmp_path / "export")
    assert open_export(tmp_path / "export").translate(texts, beam_size=2) == expected
    for target in ("onnx", "ctranslate2"):
        with pytest.raises(regard.errors.ExportError, match="PyTorch"):
            export(tmp_path / "run", to=target, out=tmp_path / target)
        assert not (tmp_path / target).exists()
