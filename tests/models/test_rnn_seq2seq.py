"""RNNSeq2Seq against the papers' equations in loops, and the laws of encoder-decoder models."""

import pytest
import torch
from torch import nn

from regard import attention as a
from regard.models import RNNSeq2Seq
from regard.models.layers import RNN_CELLS, RNNCell
from tests.models import laws
from tests.models.laws import close, sample_pairs

DIM, EMBED = 8, 6
DECODERS = {
    "bahdanau": {"decoder_type": "bahdanau"},
    "luong": {"decoder_type": "luong"},
    "feeding": {"decoder_type": "luong", "input_feeding": True},
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
GRID = [(o, c, n, x) for o in DECODERS for c in ("gru", "lstm") for n in (1, 2) for x in ATTENTIONS]


def small(decoder="bahdanau", cell="gru", layers=1, attention="additive", seed=0, **options):
    torch.manual_seed(seed)
    module = ATTENTIONS[attention]() if isinstance(attention, str) else attention
    defaults = {"embed_dim": EMBED, "hidden_dim": DIM, "cell_type": cell, "num_layers": layers, **DECODERS[decoder]}
    model = RNNSeq2Seq(laws.SRC_VOCAB_SIZE, laws.TGT_VOCAB_SIZE, module, **{**defaults, **options})
    with torch.no_grad():  # large enough that a wrong token, state or weight is noticed
        for p in model.parameters():
            p.mul_(2)
    return model.eval()


@pytest.mark.parametrize(("decoder", "cell", "layers", "attention"), GRID)
def test_laws(decoder, cell, layers, attention):
    model = small(decoder, cell, layers, attention)
    with torch.no_grad():
        laws.steps_equal_forward(model)
        laws.hidden_states_give_logits(model)
        laws.rows_are_independent(model)
        laws.later_tokens_are_hidden(model)
        laws.reordered_rows_continue(model)
        if attention == "none":
            source, lengths, target = sample_pairs()
            assert model.attention_weights(source, lengths, target) == []
            with pytest.raises(ValueError, match="no weights"):
                model.start_decoding(source, lengths).weights()
        else:
            laws.attention_weights_are_distributions(model, layers=1, heads=1, sums_to_one=attention != "local-p")


@pytest.mark.parametrize(("decoder", "cell", "layers", "attention"), [g for g in GRID if g[3] != "sample"])
def test_all_parameters_get_gradients(decoder, cell, layers, attention):
    laws.all_parameters_get_gradients(small(decoder, cell, layers, attention))


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize(
    "options", [{"tie_embeddings": True}, {"encoder_hidden_dim": 3, "attention": a.Attention(a.Additive(8, 6, 5))}]
)
def test_laws_with_other_sizes(decoder, options):
    model = small(decoder, layers=2, **options)
    assert (model.lm_head.weight is model.tgt_embed.weight) == options.get("tie_embeddings", False)
    with torch.no_grad():
        laws.steps_equal_forward(model)
        laws.reordered_rows_continue(model)
        laws.attention_weights_are_distributions(model, 1, 1)
    laws.all_parameters_get_gradients(model)


@pytest.mark.parametrize("decoder", DECODERS)
def test_laws_with_dropout(decoder):
    """In eval mode dropout is off: in the encoder, between the layers and before `lm_head`."""
    model = small(decoder, layers=2, dropout=0.5)
    with torch.no_grad():
        laws.steps_equal_forward(model)
        laws.rows_are_independent(model)
        plain = small(decoder, layers=2)
        close(model(*sample_pairs()), plain(*sample_pairs()))
        model.train()
        torch.manual_seed(1)
        first = model(*sample_pairs())
        assert not torch.allclose(first, model(*sample_pairs()))
        torch.manual_seed(1)
        assert torch.equal(first, model(*sample_pairs()))


@pytest.mark.parametrize("context_dim", [0, 5])
def test_cells_equal_pytorch(context_dim):
    for name, theirs in (("gru", nn.GRUCell), ("lstm", nn.LSTMCell)):
        ours = RNN_CELLS[name](EMBED, context_dim, DIM)
        reference = as_torch(ours, theirs, EMBED + context_dim)
        x, context = torch.randn(3, EMBED), torch.randn(3, context_dim) if context_dim else None
        state = tuple(torch.randn(3, DIM) for _ in range(ours.num_states))
        actual = ours(ours.project_input(x), context, state)
        inputs = x if context is None else torch.cat([x, context], 1)
        expected = reference(inputs, state[0] if name == "gru" else state)
        for actual_part, expected_part in zip(actual, (expected,) if name == "gru" else expected, strict=True):
            close(actual_part, expected_part, atol=1e-6)


def as_torch(cell, cell_class, input_dim):
    """PyTorch's cell with the same weights."""
    theirs = cell_class(input_dim, cell.hidden_proj.in_features).to(cell.hidden_proj.weight)
    context = [] if cell.context_proj is None else [cell.context_proj.weight]
    with torch.no_grad():
        theirs.weight_ih.copy_(torch.cat([cell.input_proj.weight, *context], 1))
        theirs.weight_hh.copy_(cell.hidden_proj.weight)
        theirs.bias_ih.copy_(cell.input_proj.bias)
        theirs.bias_hh.copy_(cell.hidden_proj.bias)
    return theirs


class Reference:
    """The papers' equations for one sentence, one token and one source state at a time."""

    def __init__(self, model):
        self.model = model
        self.cell_class = nn.GRUCell if model.encoder.layers.mode == "GRU" else nn.LSTMCell
        self.is_lstm = self.cell_class is nn.LSTMCell
        self.cells = [part for part in model.modules() if isinstance(part, RNNCell)]  # lowest layer first

    def encode(self, tokens):
        """h_i = [forward; backward], layer by layer, and the final state of both directions."""
        layers, states = self.model.encoder.layers, [self.model.src_embed.weight[token] for token in tokens]
        for layer in range(layers.num_layers):
            sides = []
            for side in ("", "_reverse"):
                cell = self.cell_class(states[0].shape[0], layers.hidden_size).to(states[0])
                for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
                    getattr(cell, name).data = getattr(layers, f"{name}_l{layer}{side}").data
                state, outputs = None, []
                for x in states if side == "" else states[::-1]:
                    state = cell(x[None], state)
                    outputs.append((state[0] if self.is_lstm else state)[0])
                sides.append(outputs if side == "" else outputs[::-1])
            states = [torch.cat(both) for both in zip(*sides, strict=True)]
        return states, torch.cat([sides[0][-1], sides[1][0]])

    def initial_states(self, final):
        start = torch.tanh(self.model.bridge.weight @ final + self.model.bridge.bias)
        parts = start.view(len(self.cells), -1, self.model.hidden_dim)
        return [tuple(part[None] for part in layer) if self.is_lstm else layer[0][None] for layer in parts]

    def score(self, query, key):
        score = self.model.attention.score
        if isinstance(score, a.Additive):
            return score.energy @ torch.tanh(score.query_proj.weight @ query + score.key_proj.weight @ key)
        return query @ (score.weight @ key if isinstance(score, a.Bilinear) else key)

    def attend(self, query, states, t):
        attention = self.model.attention
        scores = torch.stack([self.score(query, h) for h in states])
        if isinstance(attention, a.LocalM):
            center = min(t, len(states) - 1)
            near = [abs(s - center) <= attention.radius for s in range(len(states))]
            scores = scores.masked_fill(~torch.tensor(near), -torch.inf)
        weights = scores.exp() / scores.exp().sum()
        if isinstance(attention, a.LocalP):
            p = len(states) * torch.sigmoid(attention.energy @ torch.tanh(attention.query_proj.weight @ query))
            near = torch.tensor([abs(s - p.item()) <= attention.radius for s in range(len(states))])
            weights = torch.where(near, scores.exp(), 0) / torch.where(near, scores.exp(), 0).sum()
            distance = torch.arange(len(states)) - p
            weights = weights * torch.exp(-(distance**2) / (2 * (attention.radius / 2) ** 2))
        return sum(weight * h for weight, h in zip(weights, states, strict=True)), weights

    def step(self, x, states):
        new_states = []
        for cell, state in zip(self.cells, states, strict=True):
            new_states.append(as_torch(cell, self.cell_class, x.shape[0])(x[None], state))
            x = (new_states[-1][0] if self.is_lstm else new_states[-1])[0]
        return new_states, x

    def decode(self, tokens, target):
        model, logits, all_weights = self.model, [], []
        encoded, final = self.encode(tokens)
        states = self.initial_states(final)
        input_feed = torch.zeros_like(final[:1]).expand(model.lm_head.in_features)
        top = (states[-1][0] if self.is_lstm else states[-1])[0]
        readout = lambda *parts: model.readout_proj.weight @ torch.cat(parts) + model.readout_proj.bias  # noqa: E731
        for t, token in enumerate(target):
            y = model.tgt_embed.weight[token]
            if model.decoder_type == "bahdanau":
                c, weights = self.attend(top, encoded, t)
                states, top = self.step(torch.cat([y, c]), states)
                pairs = readout(top, c, y)
                hidden = torch.stack([torch.maximum(pairs[2 * j], pairs[2 * j + 1]) for j in range(len(pairs) // 2)])
            else:
                states, top = self.step(torch.cat([y, input_feed]) if model.input_feeding else y, states)
                c, weights = self.attend(top, encoded, t)
                hidden = input_feed = torch.tanh(readout(top, c))
            logits.append(model.lm_head.weight @ hidden)
            all_weights.append(weights)
        return torch.stack(logits), torch.stack(all_weights)


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("cell", ["gru", "lstm"])
@pytest.mark.parametrize("attention", ["additive", "dot", "bilinear", "local-m", "local-p"])
def test_equals_reference(decoder, cell, attention):
    model = small(decoder, cell, 2, attention).double()
    source, lengths, target = sample_pairs((5, 2, 1), target_length=6)
    with torch.no_grad():
        actual = model(source, lengths, target)
        (weights,) = model.attention_weights(source, lengths, torch.cat([target, target[:, :1]], 1))
        for row, length in enumerate(lengths.tolist()):
            expected, expected_weights = Reference(model).decode(source[row, :length], target[row])
            close(actual[row], expected, atol=1e-9)
            close(weights[row, 0, :, :length], expected_weights, atol=1e-9)


@pytest.mark.parametrize("decoder", DECODERS)
def test_encoder_is_bidirectional(decoder):
    model = small(decoder, "lstm", 2).double()
    source, lengths, _ = sample_pairs()
    states, final = model.encoder(model.src_embed(source), lengths)
    for row, length in enumerate(lengths.tolist()):
        expected, expected_final = Reference(model).encode(source[row, :length])
        close(states[row, :length], torch.stack(expected), atol=1e-9)
        close(final[row], expected_final, atol=1e-9)


@pytest.mark.parametrize("decoder", DECODERS)
def test_without_attention_only_final_states_matter(decoder):
    with torch.no_grad():
        for attention, matters in (("none", False), ("additive", True)):
            model, pairs = small(decoder, attention=attention), sample_pairs()
            before = model(*pairs)
            model.encoder.register_forward_hook(lambda m, i, o: (torch.randn_like(o[0]), o[1]))
            assert torch.allclose(model(*pairs), before, atol=1e-6) != matters


@pytest.mark.parametrize("decoder", DECODERS)
def test_attention_does_not_change_other_parameters(decoder):
    with_it, without = small(decoder), small(decoder, attention="none")
    shapes = lambda model: {n: p.shape for n, p in model.named_parameters() if "attention" not in n}  # noqa: E731
    assert shapes(with_it) == shapes(without)


@pytest.mark.parametrize("decoder", DECODERS)
def test_source_is_projected_once(decoder):
    model, (source, lengths, target) = small(decoder), sample_pairs()
    calls = []
    model.attention.score.key_proj.register_forward_hook(lambda m, i, o: calls.append(i[0].shape))
    with torch.no_grad():
        state = model.start_decoding(source, lengths)
        for t in range(3):
            state.step(target[:, t])
        state.reorder(torch.tensor([1, 0, 0]))
        state.step(target[:3, 3])
        model(source, lengths, target)
    assert len(calls) == 2


@pytest.mark.parametrize("decoder", DECODERS)
def test_empty_reorder(decoder):
    with torch.no_grad():
        state = small(decoder, "lstm", 2).start_decoding(*sample_pairs()[:2])
        state.step(torch.full((4,), laws.BOS))
        state.reorder(torch.zeros(0, dtype=torch.long))
        assert state.step(torch.zeros(0, dtype=torch.long)).shape == (0, laws.TGT_VOCAB_SIZE)


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("attention", list(ATTENTIONS))
def test_autocast_to_bfloat16(decoder, attention):
    model = small(decoder, "lstm" if attention == "dot" else "gru", 2, attention).train()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model(*sample_pairs())
    logits.float().square().sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


def test_sampled_attention_is_random_in_training_and_best_in_eval():
    model, (source, lengths, target) = small(attention="sample").train(), sample_pairs()
    draws = {tuple(model.attention_weights(source, lengths, target)[0].argmax(-1).flatten().tolist()) for _ in range(8)}
    assert len(draws) > 1
    model.eval()
    (first,), (second,) = (
        model.attention_weights(source, lengths, target),
        model.attention_weights(source, lengths, target),
    )
    assert torch.equal(first, second)


@pytest.mark.bare
def test_invalid_arguments():
    with pytest.raises(ValueError, match="input_feeding needs decoder_type='luong'"):
        RNNSeq2Seq(5, 5, None, decoder_type="bahdanau", input_feeding=True)
    model = RNNSeq2Seq(5, 5, a.Attention(a.Dot()), hidden_dim=8, encoder_hidden_dim=3)
    with pytest.raises(ValueError, match="Dot"):
        model(torch.tensor([[3]]), torch.tensor([1]), torch.tensor([[2]]))


@pytest.mark.bare
@pytest.mark.parametrize(("name", "value"), [("cell_type", "rnn"), ("decoder_type", "loung")])
def test_unknown_names(name, value):
    with pytest.raises(ValueError, match=name):
        RNNSeq2Seq(5, 5, None, hidden_dim=8, **{name: value})


@pytest.mark.bare
def test_relative_positions_are_invalid():
    with pytest.raises(ValueError, match="none between a decoder state and a source token"):
        RNNSeq2Seq(11, 13, a.Attention(a.Rotary(a.Dot())), embed_dim=4, hidden_dim=6)
