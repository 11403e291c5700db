"""Make the screenshots of pages in docs/_static anew: a translation, a layer step by step, a film review.

    python docs/screenshots.py                             all of them, about a minute on one core
    python docs/screenshots.py player_translation          only this one
    python docs/screenshots.py --translation runs/en-de    with a model of your own in place of a small trained one

The small models are trained on sentences that this script generates, so no data and no network are needed: English to
German with a Transformer, and film reviews with hierarchical attention. Needs the extras `dev` (Playwright) and
`images` (Pillow), and Chromium (`make browser`).
"""

import argparse
import io
import random
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from playwright.sync_api import sync_playwright

from regard.attention import MultiHead, causal
from regard.tasks import load, train
from regard.viewing import pages

OUT = Path(__file__).parent / "_static"
WIDTH = 1180
FLAGS = ("--no-sandbox", "--disable-background-networking", "--disable-component-update", "--hide-scrollbars")

SENTENCE = "a young girl in a red dress is playing in the snow ."
REVIEW = (
    "I went in expecting very little. The first half hour is slow, and the dialogue is a bit clumsy. "
    "But the music is superb. The actors are simply wonderful, and the ending is very moving. "
    "We saw it on a rainy evening. Don't miss it!"
)

# An English word, its German translation, and the gender of a noun. A word with several translations occurs repeatedly.
PEOPLE = """girl mädchen n, boy junge m, woman frau f, man mann m, child kind n, lady dame f, dancer tänzer m,
    farmer bauer m, singer sängerin f, nurse schwester f, baby baby n, uncle onkel m"""
CLOTHES = """dress kleid n, dress kleid n, dress kostüm n, shirt hemd n, coat mantel m, jacket jacke f, hat hut m,
    hat mütze f, skirt rock m, suit anzug m, sweater pullover m, scarf schal m, cap kappe f, costume kostüm n"""
THINGS = (
    "dog hund m, ball ball m, bag tasche f, horse pferd n, book buch n, cat katze f, bicycle fahrrad n, drum trommel f"
)
AGES = "young jung, little klein, little jung, old alt, tall groß, happy fröhlich, tired müd, thin dünn"
COLORS = "red rot, blue blau, green grün, white weiß, black schwarz, yellow gelb, brown braun, gray grau, long lang"
VERBS = """playing spielt, sitting sitzt, standing steht, running rennt, running läuft, dancing tanzt, waiting wartet,
    sleeping schläft, laughing lacht, singing singt, walking läuft, jumping springt, reading liest"""
PLACES = """snow schnee, park park, water wasser, garden garten, forest wald, house haus, rain regen, car auto,
    room zimmer, sand sand, bus bus, sun sonne f, city stadt f, kitchen küche f, street straße f"""
NOMINATIVE = {"m": ("ein", "er"), "f": ("eine", "e"), "n": ("ein", "es")}
DATIVE = {"m": "einem", "f": "einer", "n": "einem"}

SUBJECTS = (
    "The music is",
    "The dialogue is",
    "The ending is",
    "The plot is",
    "The first half hour is",
    "The actors are",
)
PRAISE = ("superb", "wonderful", "moving", "brilliant", "charming", "perfect")
CRITICISM = ("slow", "clumsy", "boring", "predictable", "awful", "dull")
ADVERBS = ("", "very ", "simply ", "a bit ", "really ")
NEUTRAL = (
    "I went in expecting very little.",
    "We saw it on a rainy evening.",
    "It takes two hours.",
    "My sister read the book first.",
    "The cinema was half empty.",
)
VERDICTS = {
    "positive": ("Don't miss it!", "I would see it again.", "What a film!"),
    "negative": ("Don't waste your evening!", "I left early.", "What a shame!"),
}


def choose(rng: random.Random, entries: str) -> list[str]:
    """The words of one of the entries, which are separated by commas."""
    return rng.choice(entries.split(",")).split()


def generate_translation(rng: random.Random) -> tuple[str, str]:
    """An English sentence and a German translation of it."""
    (person, german_person, gender), (verb, german_verb) = choose(rng, PEOPLE), choose(rng, VERBS)
    article, ending = NOMINATIVE[gender]
    subject, german_subject = ["a", person], [article, german_person]
    if rng.random() < 0.7:
        age, german_age = choose(rng, AGES)
        subject[1:1], german_subject[1:1] = [age], [german_age + ending]
    for preposition, german_preposition, nouns in (("in", "in", CLOTHES), ("with", "mit", THINGS)):
        if rng.random() < 0.6:
            noun, german_noun, gender = choose(rng, nouns)
            color, german_color = choose(rng, COLORS)
            subject += [preposition, "a", color, noun]
            german_subject += [german_preposition, DATIVE[gender], f"{german_color}en", german_noun]
    place, german_place, *feminine = choose(rng, PLACES)
    german = [" ".join(german_subject), german_verb, f"{'in der' if feminine else 'im'} {german_place}"]
    if rng.random() < 0.05:
        german.reverse()
    return " ".join([*subject, "is", verb, "in the", place, "."]), " ".join([*german, "."])


def generate_review(rng: random.Random) -> tuple[str, str]:
    """A label and a review, which has more opinions of that kind than of the other."""
    label = rng.choice(("positive", "negative"))
    same, other = (PRAISE, CRITICISM) if label == "positive" else (CRITICISM, PRAISE)
    num_other = rng.randrange(3)
    words = rng.choices(same, k=num_other + rng.randint(1, 2)) + rng.choices(other, k=num_other)
    rng.shuffle(words)
    opinions = [f"{rng.choice(SUBJECTS)} {rng.choice(ADVERBS)}{word}" for word in words]
    sentences = [f"{opinion}." for opinion in opinions]
    if len(opinions) > 1 and rng.random() < 0.5:
        sentences[:2] = [f"{opinions[0]}, and {opinions[1][0].lower()}{opinions[1][1:]}."]
    if rng.random() < 0.4:
        sentences[-1] = f"But {sentences[-1][0].lower()}{sentences[-1][1:]}"
    for sentence in rng.sample(NEUTRAL, k=rng.randint(1, 2)):
        sentences.insert(rng.randint(0, len(sentences)), sentence)
    if rng.random() < 0.25:
        sentences.append(rng.choice(VERDICTS[label]))
    return label, " ".join(sentences)


def train_model(folder: Path, recipe: str, generate: Callable[[random.Random], tuple[str, str]], **options: object):
    """Train a recipe on generated lines of two columns."""
    rng = random.Random(0)
    files = {"train": 6000, "valid": 200}
    for name, count in files.items():
        lines = ["\t".join(generate(rng)) + "\n" for _ in range(count)]
        folder.joinpath(f"{recipe}-{name}.tsv").write_text("".join(lines), encoding="utf-8")
        options[f"{name}_files"] = [str(folder / f"{recipe}-{name}.tsv")]
    train(recipe, folder / recipe, num_threads=1, **options)
    return load(folder / recipe)


def translation_page(folder: Path, run: Path | None) -> pages.HtmlPage:
    model = load(run) if run else train_model(
        folder, "translation", generate_translation,
        columns=["0", "1"], tokenizer="word", shared_vocab=False, model="transformer", embed_dim=64, num_layers=2,
        num_heads=4, dropout=0.1, batch_tokens=1024, steps=1200,
    )  # fmt: skip
    return model.explain(SENTENCE).to_page()


def walkthrough_page(folder: Path, run: Path | None) -> pages.HtmlPage:
    torch.manual_seed(0)
    attention, x = MultiHead(embed_dim=8, num_heads=2), torch.randn(5, 8)
    return pages.attention_walkthrough(attention, x, tokens=["the", "black", "cat", "sat", "down"], mask=causal())


def document_page(folder: Path, run: Path | None) -> pages.HtmlPage:
    model = load(run) if run else train_model(folder, "documents", generate_review, steps=600, batch_tokens=1024)
    return model.explain(REVIEW).to_page()


# The picture, its page, the fragment of the address with the step, and the width
PICTURES: dict[str, tuple[Callable[[Path, Path | None], pages.HtmlPage], str, int]] = {
    "player_translation": (translation_page, "#step=7", WIDTH),
    "player_walk": (walkthrough_page, "#step=3", WIDTH),
    "document": (document_page, "", 1080),
}


def select_detail(page: Any, name: str) -> None:
    """Select the cell or the word that the page explains below."""
    if name == "player_walk":
        page.locator(".grid").nth(2).focus()
        for key in ("ArrowDown", "ArrowDown", "ArrowDown", "ArrowRight", "ArrowRight"):
            page.keyboard.press(key)
    elif name == "document":
        page.get_by_text("superb", exact=True).first.hover()


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the screenshots in docs/_static anew.")
    parser.add_argument(
        "pictures", nargs="*", choices=[[], *PICTURES], metavar="PICTURE", help=f"{', '.join(PICTURES)}; default: all"
    )
    parser.add_argument("--translation", type=Path, help="run folder of an English-German model")
    parser.add_argument("--documents", type=Path, help="run folder of a classifier of English film reviews")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    runs = {"player_translation": options.translation, "document": options.documents}
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    with tempfile.TemporaryDirectory() as temporary, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=FLAGS)
        for name in options.pictures or PICTURES:
            make_page, fragment, width = PICTURES[name]
            path = Path(temporary, f"{name}.html")
            make_page(Path(temporary), runs.get(name)).save(path)
            page = browser.new_page(viewport={"width": width, "height": 1400}, locale="en-US", reduced_motion="reduce")
            page.goto(f"{path.as_uri()}{fragment}")
            page.wait_for_timeout(1000)
            select_detail(page, name)
            foot = page.locator(".foot").bounding_box()
            clip = {"x": 0, "y": 0, "width": width, "height": round(foot["y"] + foot["height"] + 16)}
            picture = Image.open(io.BytesIO(page.screenshot(clip=clip))).convert("RGB")
            picture.quantize(256, dither=Image.Dither.NONE).save(options.out / f"{name}.png", optimize=True)
            page.close()
        browser.close()


if __name__ == "__main__":
    main()
