"""The recurrent translator against the papers' equations in plain loops, and against what a model promises."""

import pytest
import torch
from torch import nn

from regard import attention as a
from regard.models import RNNSeq2Seq
from regard.models.layers import RNN_CELLS, RNNCell
from tests.models import laws
from tests.models.laws import close, logits, some_pairs

DIM, EMBED = 8, 6
ORDERS = {
    "bahdanau": {"order": "bahdanau"},
    "luong": {"order": "luong"},
    "feeding": {"order": "luong", "input_feeding": True},
}
ATTENTIONS = {
    "none": lambda: None,
    "additive": lambda: a.Attention(a.Additive(DIM, DIM, 5)),
    "dot": lambda: a.Attention(a.Dot()),
    "bilinear": lambda: a.Attention(a.Bilinear(DIM, DIM)),
    "local-m": lambda: a.LocalM(a.Dot(), radius=1),
    "local-p": lambda: a.LocalP(a.Additive(DIM, DIM, 5), DIM, 7, radius=2),
    "entmax15": lambda: a.Attention(a.Additive(DIM, DIM, 5), a.entmax15),
    "sample": lambda: a.Attention(a.Additive(DIM, DIM, 5), a.Sample()),
}
GRID = [(o, c, n, x) for o in ORDERS for c in ("gru", "lstm") for n in (1, 2) for x in ATTENTIONS]


def small(order="bahdanau", cell="gru", layers=1, attention="additive", seed=0, **options):
    torch.manual_seed(seed)
    looking = ATTENTIONS[attention]() if isinstance(attention, str) else attention
    usual = {"embed_dim": EMBED, "dim": DIM, "cell": cell, "layers": layers, **ORDERS[order]}
    model = RNNSeq2Seq(laws.SOURCE_WORDS, laws.TARGET_WORDS, looking, **{**usual, **options})
    with torch.no_grad():  # far enough from 0 that a wrong word, state or weight shows
        for p in model.parameters():
            p.mul_(2)
    return model.eval()


@pytest.mark.parametrize(("order", "cell", "layers", "attention"), GRID)
def test_promises(order, cell, layers, attention):
    model = small(order, cell, layers, attention)
    with torch.no_grad():
        laws.steps_are_forward(model)
        laws.rows_are_independent(model)
        laws.later_words_are_not_seen(model)
        laws.selected_rows_go_on(model)
        if attention == "none":
            source, lengths, target = some_pairs()
            assert model.attention_weights(source, lengths, target) == []
            with pytest.raises(ValueError, match="no weights"):
                model.start_decoding(source, lengths).weights()
        else:
            laws.looks_are_shares(model, layers=1, heads=1, adds_up=attention != "local-p")


@pytest.mark.parametrize(("order", "cell", "layers", "attention"), [g for g in GRID if g[3] != "sample"])
def test_gradients_reach_every_parameter(order, cell, layers, attention):
    laws.gradients_reach_everything(small(order, cell, layers, attention))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    "options", [{"tied": True}, {"encoder_dim": 3, "attention": a.Attention(a.Additive(8, 6, 5))}]
)
def test_promises_of_other_sizes(order, options):
    model = small(order, layers=2, **options)
    assert (model.lm_head.weight is model.tgt_embed.weight) == options.get("tied", False)
    with torch.no_grad():
        laws.steps_are_forward(model)
        laws.selected_rows_go_on(model)
        laws.looks_are_shares(model, 1, 1)
    laws.gradients_reach_everything(model)


@pytest.mark.parametrize("order", ORDERS)
def test_promises_with_dropout(order):
    """In eval mode it is off: in the encoder, between the layers and before the output."""
    model = small(order, layers=2, dropout=0.5)
    with torch.no_grad():
        laws.steps_are_forward(model)
        laws.rows_are_independent(model)
        plain = small(order, layers=2)
        close(model(*some_pairs()), plain(*some_pairs()))
        model.train()
        torch.manual_seed(1)
        one = model(*some_pairs())
        assert not torch.allclose(one, model(*some_pairs()))
        torch.manual_seed(1)
        assert torch.equal(one, model(*some_pairs()))


@pytest.mark.parametrize("late", [0, 5])
def test_cells_are_pytorchs(late):
    for name, theirs in (("gru", nn.GRUCell), ("lstm", nn.LSTMCell)):
        ours = RNN_CELLS[name](EMBED, late, DIM)
        like = as_torch(ours, theirs, EMBED + late)
        early, later = torch.randn(3, EMBED), torch.randn(3, late) if late else None
        state = tuple(torch.randn(3, DIM) for _ in range(ours.num_states))
        found = ours(ours.project_input(early), later, state)
        joined = early if later is None else torch.cat([early, later], 1)
        want = like(joined, state[0] if name == "gru" else state)
        for mine, other in zip(found, (want,) if name == "gru" else want, strict=True):
            close(mine, other, atol=1e-6)


def as_torch(cell, kind, input_dim):
    """PyTorch's cell with the same weights."""
    theirs = kind(input_dim, cell.past.in_features).to(cell.past.weight)
    late = [] if cell.late is None else [cell.late.weight]
    with torch.no_grad():
        theirs.weight_ih.copy_(torch.cat([cell.early.weight, *late], 1))
        theirs.weight_hh.copy_(cell.past.weight)
        theirs.bias_ih.copy_(cell.early.bias)
        theirs.bias_hh.copy_(cell.past.bias)
    return theirs


class Papers:
    """One sentence at a time, one word at a time, one source state at a time, as the papers write it."""

    def __init__(self, model):
        self.model, self.kind = model, nn.GRUCell if model.encoder.layers.mode == "GRU" else nn.LSTMCell
        self.lstm = self.kind is nn.LSTMCell
        self.cells = [part for part in model.modules() if isinstance(part, RNNCell)]  # from below

    def read(self, words):
        """h_i = [forward; backward], layer by layer, and the last state of both directions."""
        layers, states = self.model.encoder.layers, [self.model.read.weight[word] for word in words]
        for layer in range(layers.num_layers):
            sides = []
            for side in ("", "_reverse"):
                cell = self.kind(states[0].shape[0], layers.hidden_size).to(states[0])
                for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
                    getattr(cell, name).data = getattr(layers, f"{name}_l{layer}{side}").data
                state, found = None, []
                for x in states if side == "" else states[::-1]:
                    state = cell(x[None], state)
                    found.append((state[0] if self.lstm else state)[0])
                sides.append(found if side == "" else found[::-1])
            states = [torch.cat(both) for both in zip(*sides, strict=True)]
        return states, torch.cat([sides[0][-1], sides[1][0]])

    def start(self, last):
        made = torch.tanh(self.model.start.weight @ last + self.model.start.bias)
        parts = made.view(len(self.cells), -1, self.model.dim)
        return [tuple(part[None] for part in layer) if self.lstm else layer[0][None] for layer in parts]

    def score(self, query, key):
        score = self.model.attention.score
        if isinstance(score, a.Additive):
            return score.energy @ torch.tanh(score.query_proj.weight @ query + score.key_proj.weight @ key)
        return query @ (score.weight @ key if isinstance(score, a.Bilinear) else key)

    def attend(self, query, states, t):
        looking = self.model.attention
        scores = torch.stack([self.score(query, h) for h in states])
        if isinstance(looking, a.LocalM):
            center = min(t, len(states) - 1)
            near = [abs(s - center) <= looking.radius for s in range(len(states))]
            scores = scores.masked_fill(~torch.tensor(near), -torch.inf)
        shares = scores.exp() / scores.exp().sum()
        if isinstance(looking, a.LocalP):
            p = len(states) * torch.sigmoid(looking.energy @ torch.tanh(looking.query_proj.weight @ query))
            near = torch.tensor([abs(s - p.item()) <= looking.radius for s in range(len(states))])
            shares = torch.where(near, scores.exp(), 0) / torch.where(near, scores.exp(), 0).sum()
            distance = torch.arange(len(states)) - p
            shares = shares * torch.exp(-(distance**2) / (2 * (looking.radius / 2) ** 2))
        return sum(share * h for share, h in zip(shares, states, strict=True)), shares

    def turn(self, x, states):
        turned = []
        for cell, state in zip(self.cells, states, strict=True):
            turned.append(as_torch(cell, self.kind, x.shape[0])(x[None], state))
            x = (turned[-1][0] if self.lstm else turned[-1])[0]
        return turned, x

    def write(self, words, target):
        model, out, seen = self.model, [], []
        encoded, last = self.read(words)
        states, fed = self.start(last), torch.zeros_like(last[:1]).expand(model.output.in_features)
        top = (states[-1][0] if self.lstm else states[-1])[0]
        join = lambda *parts: model.join.weight @ torch.cat(parts) + model.join.bias  # noqa: E731
        for t, word in enumerate(target):
            y = model.write.weight[word]
            if model.order == "bahdanau":
                c, weights = self.attend(top, encoded, t)
                states, top = self.turn(torch.cat([y, c]), states)
                pairs = join(top, c, y)
                said = torch.stack(
                    [torch.maximum(pairs[2 * j], pairs[2 * j + 1]) for j in range(len(pairs) // 2)]
                )
            else:
                states, top = self.turn(torch.cat([y, fed]) if model.input_feeding else y, states)
                c, weights = self.attend(top, encoded, t)
                said = fed = torch.tanh(join(top, c))
            out.append(model.output.weight @ said)
            seen.append(weights)
        return torch.stack(out), torch.stack(seen)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("cell", ["gru", "lstm"])
@pytest.mark.parametrize("attention", ["additive", "dot", "bilinear", "local-m", "local-p"])
def test_it_is_the_papers_equations(order, cell, attention):
    model = small(order, cell, 2, attention).double()
    source, lengths, target = some_pairs((5, 2, 1), target=6)
    with torch.no_grad():
        found = logits(model, source, lengths, target)
        (looks,) = model.looks(source, lengths, torch.cat([target, target[:, :1]], 1))
        for row, length in enumerate(lengths.tolist()):
            want, seen = Papers(model).write(source[row, :length], target[row])
            close(found[row], want, atol=1e-9)
            close(looks[row, 0, :, :length], seen, atol=1e-9)


@pytest.mark.parametrize("order", ORDERS)
def test_the_encoder_reads_both_ways(order):
    model = small(order, "lstm", 2).double()
    source, lengths, _ = some_pairs()
    states, last = model.encoder(model.read(source), lengths)
    for row, length in enumerate(lengths.tolist()):
        want, end = Papers(model).read(source[row, :length])
        close(states[row, :length], torch.stack(want), atol=1e-9)
        close(last[row], end, atol=1e-9)


@pytest.mark.parametrize("order", ORDERS)
def test_without_attention_only_the_last_states_matter(order):
    with torch.no_grad():
        for attention, matters in (("none", False), ("additive", True)):
            model, pairs = small(order, attention=attention), some_pairs()
            before = model(*pairs)
            model.encoder.register_forward_hook(lambda m, i, o: (torch.randn_like(o[0]), o[1]))
            assert torch.allclose(model(*pairs), before, atol=1e-6) != matters


@pytest.mark.parametrize("order", ORDERS)
def test_without_attention_the_network_has_the_same_shape(order):
    with_it, without = small(order), small(order, attention="none")
    shapes = lambda model: {n: p.shape for n, p in model.named_parameters() if "attention" not in n}  # noqa: E731
    assert shapes(with_it) == shapes(without)


@pytest.mark.parametrize("order", ORDERS)
def test_the_source_is_projected_once(order):
    model, (source, lengths, target) = small(order), some_pairs()
    calls = []
    model.attention.score.key_proj.register_forward_hook(lambda m, i, o: calls.append(i[0].shape))
    with torch.no_grad():
        steps = model.start_decoding(source, lengths)
        for t in range(3):
            steps.step(target[:, t])
        steps.reorder(torch.tensor([1, 0, 0]))
        steps.step(target[:3, 3])
        model(source, lengths, target)
    assert len(calls) == 2


@pytest.mark.parametrize("order", ORDERS)
def test_an_empty_selection_leaves_nothing(order):
    with torch.no_grad():
        steps = small(order, "lstm", 2).start_decoding(*some_pairs()[:2])
        steps.step(torch.full((4,), laws.BOS))
        steps.reorder(torch.zeros(0, dtype=torch.long))
        assert steps.step(torch.zeros(0, dtype=torch.long)).shape == (0, laws.TARGET_WORDS)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("attention", list(ATTENTIONS))
def test_autocast_to_bfloat16_trains(order, attention):
    model = small(order, "lstm" if attention == "dot" else "gru", 2, attention).train()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        hidden = model(*some_pairs())
    hidden.float().square().sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


def test_sampled_looks_are_random_in_training_and_best_in_eval():
    model, (source, lengths, target) = small(attention="sample").train(), some_pairs()
    draws = {tuple(model.looks(source, lengths, target)[0].argmax(-1).flatten().tolist()) for _ in range(8)}
    assert len(draws) > 1
    model.eval()
    (one,), (two,) = model.looks(source, lengths, target), model.looks(source, lengths, target)
    assert torch.equal(one, two)


@pytest.mark.bare
def test_refusals_are_sentences():
    with pytest.raises(ValueError, match="input_feeding belongs to order='luong'"):
        RNNSeq2Seq(5, 5, None, order="bahdanau", input_feeding=True)
    model = RNNSeq2Seq(5, 5, a.Attention(a.Dot()), hidden_dim=8, encoder_hidden_dim=3)
    with pytest.raises(ValueError, match="Dot"):
        model(torch.tensor([[3]]), torch.tensor([1]), torch.tensor([[2]]))


@pytest.mark.bare
@pytest.mark.parametrize(("name", "wrong"), [("cell", "rnn"), ("order", "loung")])
def test_unknown_names_are_refused_with_a_sentence(name, wrong):
    with pytest.raises(ValueError, match=name):
        RNNSeq2Seq(5, 5, None, hidden_dim=8, **{name: wrong})


@pytest.mark.bare
def test_a_state_has_no_distance_to_a_word():
    with pytest.raises(ValueError, match="has none to a word of the source"):
        RNNSeq2Seq(11, 13, a.Attention(a.Rotary(a.Dot())), embed_dim=4, hidden_dim=6)
