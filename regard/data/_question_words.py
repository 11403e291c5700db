"""The questions that can be asked about a scene of digits, as words and as numbers: a small closed grammar."""

from __future__ import annotations

import re
from collections.abc import Sequence

from regard.errors import InputError

FORMS = {  # of each kind of question; # is a digit, @ one of the three places
    "there": ("is there a #", "can you see a #"),
    "count": ("how many # s", "how many # s are there"),
    "where": ("where is the #", "find the #"),
    "size": ("how large is the #", "what size is the #"),
    "left": ("what is left of the #", "what stands left of the #"),
    "right": ("what is right of the #", "what stands right of the #"),
    "name": ("what is the @ digit", "which digit is the @ one"),
}
KINDS = tuple(FORMS)
ONE = ("there", "where", "size", "name")  # questions about one digit: there is one place to look at
PLACES = ("left", "middle", "right")
CORNERS = ("top left", "top right", "bottom left", "bottom right")
NAMES = tuple(map(str, range(10)))
ANSWERS = (*NAMES, "no", "yes", *CORNERS, "small", "large", "nothing")
PLAIN = {word for forms in FORMS.values() for form in forms for word in form.split()} - {"#", "@", *PLACES}
WORDS = ("", *NAMES, *PLACES, *sorted(PLAIN))  # the first one fills a question up
LONGEST = max(len(form.split()) for forms in FORMS.values() for form in forms)
EVERY = {  # all questions there are
    form.replace(sign, word)
    for forms in FORMS.values()
    for form in forms
    for sign, words in (("#", NAMES), ("@", PLACES))
    for word in words
    if sign in form
}


def read_question(text: str) -> list[int]:
    """A question as places in `WORDS`; what is none of the grammar's raises `DataError` and says what is.

    >>> [WORDS[word] for word in read_question("How many 3s?")]
    ['how', 'many', '3', 's']
    """
    found = ["a" if word == "an" else word for word in re.findall(r"[0-9]|[^\W\d_]+", text.lower())]
    if " ".join(found) not in EVERY:
        forms = (forms[0].replace("#", "7").replace("@", "left") for forms in FORMS.values())
        known = "; ".join(write_question(form.split()) for form in forms)
        raise InputError(f"{text!r} is no question that this model knows; ask such as: {known}")
    return [WORDS.index(word) for word in found]


def write_question(words: Sequence[str]) -> str:
    """Words as people write them.

    >>> write_question(["how", "many", "3", "s"])
    'how many 3s'
    """
    return re.sub(r"(\d) s\b", r"\1s", " ".join(words))
