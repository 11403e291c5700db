"""Texts with an order that can be learned: each sentence counts up from some number."""

from random import Random

NUMBERS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]


def make_sentence(random: Random) -> str:
    """A sentence of three to seven numbers."""
    first, count = random.randrange(10), random.randint(3, 7)
    return " ".join(NUMBERS[(first + step) % 10] for step in range(count)) + "."


def make_text(num_documents: int, seed: int = 0) -> str:
    """Documents of one to three sentences, separated by blank lines."""
    random = Random(seed)
    documents = ("\n".join(make_sentence(random) for _ in range(random.randint(1, 3))) for _ in range(num_documents))
    return "\n\n".join(documents) + "\n"
