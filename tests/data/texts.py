"""Training text for the tests: real sentences, and random words with many equal counts."""

from random import Random

SENTENCES = [
    "Two young men are outside, near many bushes.",
    "A little girl climbs into a wooden playhouse.",
    "Zwei junge weiße Männer sind im Freien in der Nähe vieler Büsche.",
    "Ein kleines Mädchen klettert in ein Spielhaus aus Holz.",
    "Deux jeunes hommes sont dehors ; l'un d'eux n'est pas là.",
    "两个年轻人在外面的灌木丛旁。",
    "我们明天去北京，好吗？",
    "Девочка поднимается в деревянный домик.",
    "लड़की लकड़ी के घर में चढ़ती है।",
    "東京タワーは333メートルです。",
    'He said: "It costs $5.50 (or 4€)..." 😀👍🏽',
]


def make_lines(lines: int = 400, seed: int = 0) -> list[str]:
    random = Random(seed)
    syllables = [c + v for c in "bdfgklmnprst" for v in "aeiou"]
    words = ["".join(random.choice(syllables) for _ in range(random.randint(1, 4))) for _ in range(300)]
    return [
        " ".join(random.choice(words) for _ in range(random.randint(2, 12))) + random.choice(".?!")
        for _ in range(lines)
    ]


def all_texts() -> list[str]:
    return SENTENCES * 2 + make_lines()
