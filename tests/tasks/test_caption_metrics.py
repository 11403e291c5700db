"""The losses of image captioning, and the metrics of captions."""

import pytest
import torch

from regard.attention import Sample
from regard.data import Tokenizer
from regard.data.captions import CaptionBatch, CaptionedImages, ImageArray
from regard.data.sources import seeded_generator
from regard.data.vocabulary import SPECIAL_TOKENS, Vocabulary
from regard.tasks import get_task, make_config
from regard.tasks.captioning.predictor import caption_accuracy, caption_bleu
from regard.tasks.captioning.task import CaptioningProcessor, nearest_captions
from regard.tasks.grid import is_inside_box
from regard.training import load_into
from regard.training.trainer import Objective
from tests.tasks.fixtures_images import TINY

pytest.importorskip("PIL.Image")
pytestmark = pytest.mark.usefixtures("few_scenes")


def make_objective(config, vocab_size, feature_dim=None):
    words = [f"▁{index}" for index in range(vocab_size - len(SPECIAL_TOKENS))]
    tokenizer = Tokenizer("word", Vocabulary([*SPECIAL_TOKENS, *words], [], []))
    processor = CaptioningProcessor(tokenizer, feature_dim=feature_dim)
    task = get_task("image-to-text")
    return Objective(task.build_model(config, processor), task.build_loss(config))


def objective(*options):
    net = make_objective(make_config("digit-scenes", [*TINY, *options]), 19)
    return net, CaptionBatch.from_captions(torch.rand(6, 1, 32, 32), [[5, 6, 7]] * 5 + [[5]])


def test_the_penalty_is_added_for_soft_attention_in_training():
    net, batch = objective("doubly_stochastic_weight=2")
    plain, _ = objective()
    plain.load_state_dict(net.state_dict())
    penalty = net(batch).total - plain(batch).total
    assert float(penalty.detach()) > 0
    net.eval()
    plain.eval()
    torch.testing.assert_close(net(batch).total, plain(batch).total)
    penalty.backward()
    assert float(net.model.attention.score.energy.grad.abs().sum()) > 0


def test_hard_attention_is_rewarded():
    net, batch = objective("attention_scope=hard", "soft_fraction=0", "soft_warmup=0")
    assert isinstance(net.model.attention.normalize, Sample)
    loss = net(batch)
    loss.total.backward()
    assert float(net.model.attention.score.energy.grad.abs().sum()) > 0  # through REINFORCE only
    assert (net.loss_fn.baseline[: batch.target.shape[1] - 1] < 0).all()
    assert loss.count == batch.num_tokens == 5 * 4 + 2


def test_hard_attention_begins_as_soft_attention():
    """During `soft_warmup` all captions use the expected context, then the share `soft_fraction`."""
    net, batch = objective(
        "attention_scope=hard", "soft_fraction=0", "soft_warmup=0.5", "steps=4", "grad_accumulation=1"
    )
    is_sampled = []
    for _ in range(4):
        _, outputs = net.loss_fn._decode(net.model, batch)
        is_sampled.append(all(bool((output.weights.amax(-1) == 1).all()) for output in outputs))
    assert is_sampled == [False, False, True, True]
    assert float(net.loss_state()["num_batches"]) == 4  # so that a resumed training continues with it
    other, _ = objective("attention_scope=hard")
    load_into(other.model, net.model.state_dict(), "a run")
    assert float(other.loss_fn.num_batches) == 0
    assert not other.loss_fn.baseline.any()


def test_hard_attention_learns_by_reinforce():
    """One cell of nine determines the word."""
    settings = make_config(
        "flickr8k",
        ["attention_scope=hard", "hidden_dim=16", "embed_dim=8", "dropout=0", "soft_fraction=0", "soft_warmup=0"],
    )
    net = make_objective(settings, 8, feature_dim=8)
    optimizer = torch.optim.Adam(net.parameters(), 0.01)
    random = seeded_generator(0)
    for _ in range(150):
        batch = sample_marked_grids(random, 64)
        optimizer.zero_grad()
        loss = net(batch)
        (loss.total / loss.count).backward()
        optimizer.step()
    net.eval()
    batch = sample_marked_grids(random, 200)
    cells = net.model.attention_weights(batch.images, batch.target)[:, 0].argmax(-1)
    assert float((cells == batch.images[..., 7].argmax(-1)).float().mean()) > 0.9


def sample_marked_grids(random, rows):
    """Grids of nine cells with a random word each; the last feature marks the cell whose word is the caption."""
    words, cell = (torch.randint(most, (rows,), generator=random) for most in (4, 9))
    grid = torch.zeros(rows, 9, 8)
    grid.scatter_(2, torch.randint(4, (rows, 9, 1), generator=random), 1.0)
    row = torch.arange(rows)
    grid[row, cell] = 0
    grid[row, cell, words] = 1
    grid[row, cell, 7] = 1
    return CaptionBatch.from_captions(grid, [[4 + word] for word in words.tolist()])


def test_caption_accuracy():
    true = ["small 1 above , large 2 below", "small 3 above , small 4 above"]
    assert caption_accuracy(true, true) == {"captions": 100.0, "digits": 100.0}
    predictions = ["small 1 above , large 2 above", "small 3"]
    assert caption_accuracy(predictions, true) == {"captions": 0.0, "digits": 75.0}


def test_is_inside_box_enlarges_the_box_by_one_cell():
    box = torch.tensor([16, 24, 26, 34])
    inside = [
        [bool(is_inside_box(torch.tensor([[row * 8 + column]]), box[None, None], 64, 8)) for column in range(8)]
        for row in range(8)
    ]
    for row in range(8):
        for column in range(8):
            left, top = 8 * column, 8 * row
            expected = left >= 8 and left + 8 <= 34 and top >= 16 and top + 8 <= 42
            assert inside[row][column] == expected
    assert not bool(is_inside_box(torch.tensor([[-1]]), box[None, None] * 0, 64, 8))


def test_bleu_with_and_without_the_penalty():
    scores, signature = caption_bleu(
        ["a dog", "a cat sits"], [["A dog", "the dog runs far"], ["a cat sits"]], lowercase=True
    )
    assert scores["bleu1"] == scores["bleu1_bare"] == pytest.approx(100)
    short, _ = caption_bleu(["a dog runs"], [["a dog runs to me"]], lowercase=False)
    assert short["bleu1_bare"] == pytest.approx(100)
    assert short["bleu1"] == pytest.approx(100 * 2.718281828 ** (1 - 5 / 3))
    assert caption_bleu(["a dog"], [["A Dog"]], lowercase=False)[0]["bleu1"] < 60
    assert "tok:none" in signature


def test_nearest_captions():
    grids = torch.eye(3)[:, None].repeat(1, 4, 1)
    train = CaptionedImages(ImageArray(grids, 1.0), [["a", "x"], ["b"], ["c"]])
    images = CaptionedImages(ImageArray(grids[[2, 0]] * 5 + 0.1, 1.0), [["?"], ["?"]])
    assert nearest_captions(train, images) == ["c", "a"]
