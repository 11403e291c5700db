"""Random reviews: one word of one of their sentences decides the label."""

from random import Random

FILLERS = ["the", "plot", "a", "scene", "of", "actor", "music", "light", "we", "saw", "it", "then", "city", "road"]
DECISIVE = {"pos": ("superb", "lovely"), "neg": ("awful", "boring")}
SMALL = [
    "hidden_dim=16",
    "embed_dim=16",
    "vocab_size=100",
    "batch_tokens=600",
    "num_threads=1",
    "dropout=0",
    "warmup_steps=5",
    "lr=0.03",
]
TINY = [*SMALL, "steps=4", "validate_every=2", "save_every=2"]


def reviews(count: int, seed: int = 0) -> list[tuple[str, str]]:
    """Pairs of label and text."""
    random, pairs = Random(seed), []
    for _ in range(count):
        label = random.choice(sorted(DECISIVE))
        sentences = [[random.choice(FILLERS) for _ in range(random.randint(2, 6))] for _ in range(random.randint(1, 4))]
        random.choice(sentences).insert(random.randint(0, 2), random.choice(DECISIVE[label]))
        pairs.append((label, " ".join(f"{' '.join(words).capitalize()}." for words in sentences)))
    return pairs


def write_tsv(path, pairs) -> str:
    """Write a line for each pair, and return the path."""
    path.write_text("".join(f"{label}\t{text}\n" for label, text in pairs), encoding="utf-8")
    return str(path)
