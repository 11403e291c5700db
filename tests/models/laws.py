"""What every model promises, whatever is inside: each law as a function that asserts."""

import torch

PAD, UNK, BOS, EOS = range(4)
SOURCE_WORDS, TARGET_WORDS = 11, 13


def close(a, b, atol=1e-5):
    torch.testing.assert_close(a, b, atol=atol, rtol=1e-5)


def some_pairs(lengths=(6, 3, 1, 5), target=6, seed=0):
    """Sources of these lengths, EOS last, and targets that begin with BOS."""
    generator = torch.Generator().manual_seed(seed)
    source = torch.full((len(lengths), max(lengths)), PAD)
    for row, length in enumerate(lengths):
        source[row, : length - 1] = torch.randint(4, SOURCE_WORDS, (length - 1,), generator=generator)
        source[row, length - 1] = EOS
    words = torch.randint(4, TARGET_WORDS, (len(lengths), target), generator=generator)
    words[:, 0] = BOS
    return source, torch.tensor(lengths), words


def logits(model, source, lengths, target):
    return model.output(model(source, lengths, target))


def steps_are_forward(model):
    """Word by word gives the scores that the whole target gives at once."""
    source, lengths, target = some_pairs()
    steps = model.begin(source, lengths)
    each = torch.stack([steps.step(target[:, t]) for t in range(target.shape[1])], 1)
    close(each, logits(model, source, lengths, target))


def rows_are_independent(model):
    """A row in a batch, with garbage where it is filled up, is the row alone."""
    source, lengths, target = some_pairs()
    garbage = torch.randint(0, SOURCE_WORDS, source.shape)
    places = torch.arange(source.shape[1]) >= lengths[:, None]
    together = logits(model, torch.where(places, garbage, source), lengths, target)
    wider = torch.cat([source, torch.randint(0, SOURCE_WORDS, (len(source), 4))], 1)
    close(logits(model, wider, lengths, target), together)
    for row in (1, 2):
        length = int(lengths[row])
        alone = logits(model, source[row : row + 1, :length], lengths[row : row + 1], target[row : row + 1])
        close(together[row], alone[0])


def later_words_are_not_seen(model):
    source, lengths, target = some_pairs()
    other = target.clone()
    other[:, 4:] = (other[:, 4:] - 4 + 1) % (TARGET_WORDS - 4) + 4
    one, two = model(source, lengths, target), model(source, lengths, other)
    close(one[:, :4], two[:, :4], atol=1e-6)
    assert not torch.allclose(one[:, 4:], two[:, 4:], atol=1e-3)


def selected_rows_go_on(model):
    """After any mixing of rows each row goes on as if it had been written alone from the start."""
    source, lengths, _ = some_pairs()
    steps = model.begin(source, lengths)
    written = [[i, []] for i in range(len(source))]  # the source of each row, and its words so far
    words = torch.randint(4, TARGET_WORDS, (12, 20))
    choices = [[2, 0, 1, 3], [0, 0, 3, 3, 1], [1, 0, 3, 2, 4], [4, 2, 0], [2, 2, 1, 0, 0, 1]]
    for t, rows in enumerate(choices):
        said = words[t, : len(written)]
        found = steps.step(said)
        for row, word in zip(written, said.tolist(), strict=True):
            row[1].append(word)
        which = torch.tensor([i for i, _ in written])
        prefixes = torch.tensor([prefix for _, prefix in written])
        close(found, logits(model, source[which], lengths[which], prefixes)[:, -1])
        steps.select(torch.tensor(rows))
        written = [[written[row][0], list(written[row][1])] for row in rows]


def looks_are_shares(model, layers, heads, adds_up=True):
    """Weights of each target word over its source: they sum to 1, nothing on padding, and are those of the steps."""
    source, lengths, target = some_pairs()
    looks = model.looks(source, lengths, target)
    assert [tuple(one.shape) for one in looks] == [
        (len(source), heads, target.shape[1] - 1, source.shape[1])
    ] * layers
    for one in looks:
        real = (torch.arange(source.shape[1]) < lengths[:, None])[:, None, None].expand_as(one)
        assert (one[~real] == 0).all()
        assert (one >= 0).all()
        if adds_up:
            close(one.sum(-1), torch.ones_like(one.sum(-1)))
    steps, mean = model.begin(source, lengths), torch.stack(looks).mean((0, 2))
    for t in range(target.shape[1] - 1):
        steps.step(target[:, t])
        close(steps.weights(), mean[:, t])


def gradients_reach_everything(model):
    source, lengths, target = some_pairs()
    model.train()
    torch.manual_seed(1)
    found = logits(model, source, lengths, target)
    torch.nn.functional.cross_entropy(found.flatten(0, 1), target.roll(-1, 1).flatten()).backward()
    idle = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.abs().max() > 0]
    assert idle == []
