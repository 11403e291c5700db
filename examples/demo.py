"""Train a translator in minutes: dates as people write them in 58 languages, to ISO 8601.

    make demo

Trains an RNN with Bahdanau attention on generated dates, evaluates it on dates and years that are not in the training
data, and shows the attention weights of each character in the terminal and in out/demo.png. The run stays in out/dates:
`regard translate out/dates "3. Mai 2010"`.
"""

import argparse
import shutil
from pathlib import Path

from regard._imports import require_extra
from regard.data.dates import list_languages
from regard.tasks import Translator, get_recipe, load, resume, train
from regard.training import RunFolder
from regard.viewing import heatmap

OUT = Path(__file__).parent.parent / "out"
SHOWN_DATES = (
    "17. Oktober 2031",
    "2031年10月17日星期五",
    "vendredi 17 octobre 2031",
    "пятница, 17 октября 2031 г.",
    "<en> 10/17/31",
)
DRAWN_DATES = ("17. Oktober 2031", "пятница, 17 октября 2031 г.", "<en> 10/17/31", "Παρασκευή 17 Οκτωβρίου 2031")


def train_or_resume(folder: Path, overrides: list[str]) -> Translator:
    """The model of a run folder. A new run is trained; an interrupted one is resumed."""
    if RunFolder(folder).is_run():
        print(f"{folder} exists already; use --again to train a new model.\n")
        result = resume(folder)
    else:
        result = train("dates", folder, overrides)
    if result.interrupted:
        raise SystemExit(130)
    print(f"\nTrained for {result.seconds / 60:.1f} minutes, {result.step:,} steps.\n")
    return load(folder)


def print_report(translator: Translator, limit: int | None) -> None:
    tests = get_recipe("dates").load_data(translator.config).tests
    names = {"test": "new dates and years in known formats", "patterns": "new formats"}
    for split, pairs in tests.items():
        metrics = translator.evaluate(list(pairs)[:limit]).metrics
        print(
            f"{metrics['exact_match']:6.2f} % exactly right, alignment error rate {metrics['aer']:.3f}: {names[split]}"
        )


def print_weights(translator: Translator) -> None:
    for text, translation in zip(SHOWN_DATES, translator.translate(list(SHOWN_DATES)), strict=True):
        words = translator.align(text, translation).merge_words()
        print(f"\n{text}  ->  {translation}\n")
        print(heatmap(words.weights[0, 0], row_labels=words.target, column_labels=words.source))


def draw_weights(translator: Translator, path: Path) -> None:
    """The same as a figure, for scripts that the default font of matplotlib covers."""
    plt = require_extra("matplotlib.pyplot", extra="draw")
    figure, axes = plt.subplots(2, 2, figsize=(12, 8), layout="constrained")
    for ax, text, translation in zip(axes.flat, DRAWN_DATES, translator.translate(list(DRAWN_DATES)), strict=True):
        words = translator.align(text, translation).merge_words()
        image = ax.imshow(words.weights[0, 0], cmap="YlGnBu", vmin=0, vmax=1, aspect="auto")
        ax.set_xticks(range(len(words.source)), ["␣" if character == " " else character for character in words.source])
        ax.set_yticks(range(len(words.target)), words.target)
        ax.tick_params(length=0)
        ax.set(title=f"{text}  →  {translation}")
    figure.colorbar(image, ax=axes, label="weight", shrink=0.6)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a date translator in minutes and draw its attention weights.")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="options that differ from the recipe")
    parser.add_argument("--out", type=Path, default=OUT, help="folder of the run and the figure")
    parser.add_argument("--again", action="store_true", help="delete the run and train a new one")
    parser.add_argument("--limit", type=int, help="evaluate on this number of dates")
    options = parser.parse_args()
    require_extra("matplotlib", extra="draw").use("Agg")  # fails before the training if it is missing
    folder = options.out / "dates"
    if options.again:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"Dates in {len(list_languages())} languages, to ISO 8601. Ctrl-C stops; `make demo` resumes.\n")
    translator = train_or_resume(folder, options.overrides)
    print_report(translator, options.limit)
    print_weights(translator)
    draw_weights(translator, options.out / "demo.png")
    print(f"\nThe figure is {options.out / 'demo.png'}. Translate another date:")
    print(f'    regard translate {folder} "3. Mai 2010" --align')


if __name__ == "__main__":
    main()
