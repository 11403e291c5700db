"""Text with an order that can be learned: each sentence counts on by one from somewhere."""

from random import Random

NUMBERS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]


def sentence(random: Random) -> str:
    first, many = random.randrange(10), random.randint(3, 7)
    return " ".join(NUMBERS[(first + step) % 10] for step in range(many)) + "."


def text(documents: int, seed: int = 0) -> str:
    """Documents of one to three sentences, apart by blank lines."""
    random = Random(seed)
    made = ("\n".join(sentence(random) for _ in range(random.randint(1, 3))) for _ in range(documents))
    return "\n\n".join(made) + "\n"
