"""A translator in three minutes: dates as people write them in 58 languages, to ISO 8601.

    make demo

It learns its alphabet, trains a recurrent network with Bahdanau's attention on dates made on the fly, translates
dates and years that it has never seen, and shows where it looked while it wrote each digit: in the terminal, and
in out/demo.png. The trained model stays in out/dates: `regard translate out/dates "3. Mai 2010"`.
"""

import argparse
import shutil
from pathlib import Path

from regard._imports import require_extra
from regard.data.dates import list_languages
from regard.tasks import Translator, evaluate, get_recipe, load, resume, train
from regard.training import RunFolder
from regard.viewing import heatmap

OUT = Path(__file__).parent.parent / "out"
SHOWN = (
    "17. Oktober 2031",
    "2031年10月17日星期五",
    "vendredi 17 octobre 2031",
    "пятница, 17 октября 2031 г.",
    "<en> 10/17/31",
)
DRAWN = ("17. Oktober 2031", "пятница, 17 октября 2031 г.", "<en> 10/17/31", "Παρασκευή 17 Οκτωβρίου 2031")


def trained(folder: Path, words: list[str]) -> Translator:
    """The model of the folder, trained now if it is not there; what was interrupted goes on."""
    if RunFolder(folder).is_run():
        print(f"{folder} is there already; delete it to train anew.\n")
        outcome = resume(folder)
    else:
        outcome = train("dates", folder, words)
    if outcome.interrupted:
        raise SystemExit(130)
    print(f"\nTrained for {outcome.seconds / 60:.1f} minutes, {outcome.step:,} steps.\n")
    return load(folder)


def judge(translator: Translator, limit: int | None) -> None:
    tests = get_recipe("dates").load_data(translator.config).tests
    names = {"test": "dates and years never seen, in known patterns", "patterns": "patterns never seen either"}
    for part, pairs in tests.items():
        found = evaluate(translator, list(pairs)[:limit])
        print(f"{found['exact']:6.2f} % exactly right, alignment error rate {found['aer']:.3f}: {names[part]}")


def show(translator: Translator) -> None:
    for text, answer in zip(SHOWN, translator.translate(list(SHOWN)), strict=True):
        seen = translator.align(text, answer).merge_words()
        print(f"\n{text}  ->  {answer}\n")
        print(heatmap(seen.weights[0, 0], row_labels=seen.target, column_labels=seen.source))


def draw(translator: Translator, path: Path) -> None:
    """The same as a picture; in scripts for which matplotlib brings a font."""
    plt = require_extra("matplotlib.pyplot", extra="draw")
    figure, axes = plt.subplots(2, 2, figsize=(12, 8), layout="constrained")
    for ax, text, answer in zip(axes.flat, DRAWN, translator.translate(list(DRAWN)), strict=True):
        seen = translator.align(text, answer).merge_words()
        image = ax.imshow(seen.weights[0, 0], cmap="YlGnBu", vmin=0, vmax=1, aspect="auto")
        ax.set_xticks(range(len(seen.source)), ["␣" if letter == " " else letter for letter in seen.source])
        ax.set_yticks(range(len(seen.target)), seen.target)
        ax.tick_params(length=0)
        ax.set(title=f"{text}  →  {answer}")
    figure.colorbar(image, ax=axes, label="weight", shrink=0.6)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description="A translator in three minutes.")
    parser.add_argument("settings", nargs="*", metavar="key=value", help="other settings than the recipe's")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--again", action="store_true", help="train anew, whatever is there")
    parser.add_argument("--limit", type=int, help="judge by so many dates only")
    options = parser.parse_args()
    require_extra("matplotlib", extra="draw").use("Agg")  # what is missing is said now, and not after three minutes
    folder = options.out / "dates"
    if options.again:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"Dates in {len(list_languages())} languages, to ISO 8601. Ctrl-C stops; `make demo` goes on.\n")
    translator = trained(folder, options.settings)
    judge(translator, options.limit)
    show(translator)
    draw(translator, options.out / "demo.png")
    print(f"\nThe picture is in {options.out / 'demo.png'}. Try one of your own:")
    print(f'    regard translate {folder} "3. Mai 2010" --align')


if __name__ == "__main__":
    main()
