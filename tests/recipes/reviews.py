"""Reviews made up by chance: one sentence of several says what the author thinks, by one word."""

from random import Random

FILLER = (
    "the",
    "plot",
    "a",
    "scene",
    "of",
    "actor",
    "music",
    "light",
    "we",
    "saw",
    "it",
    "then",
    "city",
    "road",
)
TELLING = {"pos": ("superb", "lovely"), "neg": ("awful", "boring")}
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
    random, made = Random(seed), []
    for _ in range(count):
        label = random.choice(sorted(TELLING))
        texts = [
            [random.choice(FILLER) for _ in range(random.randint(2, 6))] for _ in range(random.randint(1, 4))
        ]
        random.choice(texts).insert(random.randint(0, 2), random.choice(TELLING[label]))
        made.append((label, " ".join(f"{' '.join(words).capitalize()}." for words in texts)))
    return made


def tsv(path, pairs) -> str:
    path.write_text("".join(f"{label}\t{text}\n" for label, text in pairs), encoding="utf-8")
    return str(path)
