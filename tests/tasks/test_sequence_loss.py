"""The losses: cross entropy of the real tokens, and REINFORCE with the exact gradient on average."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from regard import attention as a
from regard.data.pair_batches import PairBatch
from regard.data.vocabulary import BOS_ID, EOS_ID
from regard.models import RNNSeq2Seq, Transformer
from regard.tasks import NextTokenLoss, make_config
from regard.tasks.sequence_loss import BASELINE_POSITIONS, ReinforceLoss, discounted_returns, target_positions
from regard.tasks.translation.task import build_loss
from regard.training.trainer import Objective

BATCH = PairBatch.from_pairs([([5, 6, 7], [4, 5]), ([8], [6, 7, 8, 4]), ([4, 4, 9, 5, 6], [])])


def models():
    yield RNNSeq2Seq(11, 13, a.Attention(a.Additive(8, 8, 8)), embed_dim=6, hidden_dim=8)
    yield RNNSeq2Seq(11, 13, None, embed_dim=6, hidden_dim=8, decoder_type="luong", tie_embeddings=True)
    yield Transformer(11, 13, embed_dim=8, num_heads=2, num_encoder_layers=1, ffn_dim=8, dropout=0.0)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_loss_is_the_cross_entropy_of_the_real_tokens(smoothing):
    for model in models():
        loss = NextTokenLoss(smoothing)(model, BATCH)
        logits = model(BATCH.source, BATCH.source_lengths, BATCH.target[:, :-1])
        total, nll, count = 0.0, 0.0, 0
        for row, length in enumerate(BATCH.target_lengths.tolist()):
            for t in range(length - 1):
                word = BATCH.target[row, t + 1]
                total += F.cross_entropy(logits[row, t], word, label_smoothing=smoothing)
                nll += F.cross_entropy(logits[row, t], word).item()
                count += 1
        assert loss.count == count == BATCH.num_tokens
        torch.testing.assert_close(loss.total, total, atol=1e-5, rtol=1e-5)
        assert loss.metrics["nll"] == pytest.approx(nll, abs=1e-4)
        weights = list(model.parameters())
        for ours, theirs in zip(
            torch.autograd.grad(loss.total, weights), torch.autograd.grad(total, weights), strict=True
        ):
            torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)


def test_padding_has_no_loss():
    """The loss and its gradient do not know of columns that are all padding."""
    model = next(models())
    objective = Objective(model, NextTokenLoss())
    wide = PairBatch(
        F.pad(BATCH.source, (0, 3)), BATCH.source_lengths, F.pad(BATCH.target, (0, 2)), BATCH.target_lengths
    )
    one, two = objective(BATCH), objective(wide)
    assert one.count == two.count
    torch.testing.assert_close(one.total, two.total)


def test_losses_of_shards_add_up():
    for model in models():
        objective = Objective(model, NextTokenLoss())
        parts = [objective(BATCH.shard(rank, 2)) for rank in range(2)]
        full_batch = objective(BATCH)
        torch.testing.assert_close(sum(part.total for part in parts), full_batch.total)
        assert sum(part.count for part in parts) == full_batch.count


def test_target_positions():
    target = BATCH.target[:, 1:]
    assert target.flatten()[target_positions(BATCH)].tolist() == [4, 5, EOS_ID, 6, 7, 8, 4, EOS_ID, EOS_ID]


@pytest.mark.parametrize("discount", [0.0, 0.5, 1.0])
def test_discounted_returns(discount):
    gain = torch.randn(3, 5)
    for row, t in itertools.product(range(3), range(5)):
        expected = sum(discount ** (u - t) * gain[row, u] for u in range(t, 5))
        torch.testing.assert_close(discounted_returns(gain, discount)[row, t], expected)


def hard(rows=1, seed=0, **options):
    """A model whose attention samples one of three source words once, and a target of one word."""
    torch.manual_seed(seed)
    attention = a.Attention(a.Additive(6, 6, 6), a.Sample())
    model = RNNSeq2Seq(11, 7, attention, embed_dim=5, hidden_dim=6, **options).double()
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(2)
    batch = PairBatch(
        torch.tensor([[5, 8, EOS_ID]] * rows),
        torch.tensor([3] * rows),
        torch.tensor([[BOS_ID, EOS_ID]] * rows),
        torch.tensor([2] * rows),
    )
    return model, batch


class FixedChoice(nn.Module):
    """A normalizer that gives one key all the weight."""

    def __init__(self, choice):
        super().__init__()
        self.choice = choice

    def forward(self, scores):
        return torch.zeros_like(scores).index_fill(-1, torch.tensor(self.choice), 1.0)


def exact_gradient(model, batch):
    """The gradient of E_choice[-log p(word | choice)], all choices written out."""
    first = model.decode(batch.source[:1], batch.source_lengths[:1], batch.target[:1, :-1]).attention[0]
    chances, expected = first.scores.softmax(-1).flatten(), 0.0
    for choice, probability in enumerate(chances):
        saved = model.attention.normalize
        model.attention.normalize = FixedChoice(choice)
        logits = model(batch.source[:1], batch.source_lengths[:1], batch.target[:1, :-1])
        expected = expected + probability * F.cross_entropy(logits[:, 0], batch.target[:1, 1])
        model.attention.normalize = saved
    return torch.autograd.grad(expected, list(model.parameters()))


def estimated_gradient(objective, batch, times):
    """The mean of the estimate and its standard error, parameter by parameter."""
    weights, sums, squares = list(objective.model.parameters()), 0.0, 0.0
    for _ in range(times):
        gradients = torch.autograd.grad(objective(batch).total / len(batch), weights)
        flat = torch.cat([g.flatten() for g in gradients])
        sums, squares = sums + flat, squares + flat**2
    mean = sums / times
    return mean, ((squares / times - mean**2) / times).sqrt()


def score_names(model):
    return torch.cat([
        torch.full((p.numel(),), name.startswith("attention")) for name, p in model.named_parameters()
    ])  # fmt: skip


@pytest.mark.parametrize("decoder_type", ["bahdanau", "luong"])
@pytest.mark.parametrize("baseline", [0.0, -3.0])
def test_reinforce_has_the_exact_gradient_on_average(decoder_type, baseline):
    """Rows of the same sentence are as many draws at once; the baseline must not show in the mean."""
    model, batch = hard(rows=512, decoder_type=decoder_type)
    objective = Objective(model, ReinforceLoss(0.0, entropy_bonus=0.0, reward_discount=1.0)).train()
    objective.loss_fn.baseline = objective.loss_fn.baseline.double() + baseline
    expected = torch.cat([g.flatten() for g in exact_gradient(model, batch)])
    gradients, error = estimated_gradient(objective, batch, times=60)
    assert (expected[score_names(model)].abs() > 1e-4).any()
    # 1/512 of the moving baseline's new tenth is of the row itself: a bias below a thousandth
    assert ((gradients - expected).abs() <= 5 * error + 1e-3 * expected.abs() + 1e-9).all()


def test_the_baseline_does_not_bias_the_gradient_of_one_token():
    """With one choice a batch, the estimate of the score's gradient shrinks to 0.9 of what it should be."""
    model, batch = hard(rows=1)
    objective = Objective(model, ReinforceLoss(0.0, entropy_bonus=0.0, reward_discount=1.0)).double().train()
    score = score_names(model)
    expected = torch.cat([g.flatten() for g in exact_gradient(model, batch)])[score]
    gradients = torch.zeros_like(expected)
    for choice in range(3):  # the draws of each choice are alike, so weigh them by their chances
        probability, grad = one_choice(model, objective, batch, choice)
        gradients += probability * torch.cat([g.flatten() for g in grad])[score]
    torch.testing.assert_close(gradients, expected, atol=1e-6, rtol=1e-2)


def one_choice(model, objective, batch, choice):
    """The estimate where this key is drawn, beginning with a baseline of 0, and the chance of it."""
    for seed in range(200):
        torch.manual_seed(seed)
        objective.loss_fn.baseline.zero_()
        choices = []
        hook = model.attention.normalize.register_forward_hook(lambda m, i, o, choices=choices: choices.append(o))
        loss = objective(batch)
        hook.remove()
        if int(choices[0].argmax()) == choice:
            probability = model.decode(batch.source, batch.source_lengths, batch.target[:, :-1]).attention[0]
            grad = torch.autograd.grad(loss.total, list(model.parameters()))
            return probability.scores.softmax(-1).flatten()[choice].detach(), grad
    raise AssertionError("the choice was never sampled")


def test_the_entropy_bonus_raises_the_entropy():
    """Two objectives with the same samples differ by the entropy of the weights."""
    model, batch = hard(rows=3)
    totals = []
    for entropy in (0.0, 0.7):
        torch.manual_seed(0)
        totals.append(Objective(model, ReinforceLoss(0.0, entropy, 1.0)).double().train()(batch).total)
    shares = model.decode(batch.source, batch.source_lengths, batch.target[:, :-1]).attention[0].scores.softmax(-1)
    expected = 0.7 * -(shares * shares.log()).sum()
    torch.testing.assert_close(totals[0] - totals[1], expected)


@pytest.mark.parametrize("options", [{}, {"decoder_type": "luong"}, {"decoder_type": "luong", "input_feeding": True}])
def test_gradients_reach_every_parameter(options):
    model, _ = hard(**options)
    objective = Objective(model, ReinforceLoss()).double().train()
    objective(BATCH_SMALL).total.backward()
    assert [name for name, p in model.named_parameters() if p.grad is None or not p.grad.abs().max() > 0] == []


BATCH_SMALL = PairBatch.from_pairs([([5, 6, 7], [4, 5]), ([8], [6, 6, 6, 4]), ([4, 4, 9, 5, 6], [])])


def test_eval_mode_has_plain_loss_and_keeps_the_baseline():
    model, batch = hard(rows=2)
    objective = Objective(model, ReinforceLoss(0.0)).double().eval()
    one, two = objective(batch), objective(batch)
    assert one.total.item() == two.total.item() == pytest.approx(one.metrics["nll"])
    assert not objective.loss_fn.baseline.any()
    objective.train()(batch)
    words = batch.target.shape[1] - 1
    assert (objective.loss_fn.baseline[:words] < 0).all()
    assert not objective.loss_fn.baseline[words:].any()


def test_each_position_has_a_baseline_of_its_own():
    """It moves by a tenth to the mean reward of a place; where no word is, it stays; what is far shares the last."""
    model, _ = hard()
    objective = Objective(model, ReinforceLoss())
    reward, place = torch.tensor([-1.0, -2.0, -4.0, -5.0]), torch.tensor([0, 1, 1, BASELINE_POSITIONS - 1])
    assert not objective.loss_fn._update_baseline(reward, place).any()
    assert objective.loss_fn._update_baseline(reward, place).tolist() == pytest.approx([-0.1, -0.3, -0.3, -0.5])
    assert objective.loss_fn.baseline[2 : BASELINE_POSITIONS - 1].tolist() == [0.0] * (BASELINE_POSITIONS - 3)
    long = PairBatch.from_pairs([([5, 6, 7], [4] * (BASELINE_POSITIONS + 9))])
    before = objective.loss_fn.baseline.clone()
    objective.train()(long)
    assert (objective.loss_fn.baseline != before).all()


def test_only_sampled_attention_has_a_baseline():
    assert "baseline" in build_loss(make_config("reverse", ["normalize=sample"])).state_dict()
    for options in ([], ["normalize=sample", "attention_scope=none"], ["normalize=hardmax"]):
        assert not build_loss(make_config("reverse", options)).state_dict()


@pytest.mark.slow
def test_hard_attention_learns_to_reverse():
    from regard.data import BatchingConfig, GeneratedPairs, Tokenizer
    from regard.data.strings import Reverse

    batch_losses = Reverse(alphabet="abcdef", min_length=2, max_length=5)
    letters = Tokenizer.train(["abcdef"], model_type="char", vocab_size=20)

    def trained(attention):
        torch.manual_seed(0)
        model = RNNSeq2Seq(len(letters), len(letters), attention, embed_dim=16, hidden_dim=32)
        loss_fn = ReinforceLoss(0.0) if attention is not None else NextTokenLoss(0.0)
        objective = Objective(model, loss_fn).train()
        optimizer = torch.optim.Adam(objective.parameters(), lr=5e-3)
        data = GeneratedPairs(batch_losses.sample, letters, letters, BatchingConfig(max_tokens=400)).batches(None)
        losses = []
        for _ in range(900):
            loss = objective(next(data)[0])
            optimizer.zero_grad()
            (loss.total / loss.count).backward()
            optimizer.step()
            losses.append(loss.metrics["nll"] / loss.count)
        return sum(losses[-100:]) / 100

    sampled, without = trained(a.Attention(a.Additive(32, 32, 32), a.Sample())), trained(None)
    assert sampled < 0.7 * without, (sampled, without)
