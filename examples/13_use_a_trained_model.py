"""13. Use a trained model: translate, align, search, score given translations, evaluate.

The recipe `reverse` reverses strings and is learned in seconds. Everything here works for every translation run, such
as those of `regard train`: `regard.load("runs/dates")`.
"""

import math
from tempfile import TemporaryDirectory

import regard
from regard.tasks import get_recipe, train
from regard.viewing import heatmap

with TemporaryDirectory() as run:
    train("reverse", run, max_length=6, batch_tokens=512, steps=220, log=print)
    translator = regard.load(run)

print("\ntranslate:", translator.translate("regard"), translator.translate(["on", "time"]))

alignment = translator.align("regard", "drager")  # also of translations from elsewhere
words = alignment.merge_words()
print("\nalign: one row per target letter, one column per source letter")
print(heatmap(words.weights[0, 0], words.target, words.source))
print("links (source, target):", sorted(alignment.links()))

print("\nsearch: the three best hypotheses of a beam of five, with their probabilities")
for hypothesis in translator.search(["star"], translator.decoding_config(beam_size=5, num_best=3))[0]:
    print(f"  {translator.to_text(hypothesis):6} {math.exp(hypothesis.log_prob):9.6f}")

print("\nscore: the probability of each letter of a wrong translation")
wrong = translator.score(["star"], ["rbts"])[0]
for letter, log_prob in zip([*"rbts", "end"], wrong.token_log_probs, strict=True):
    print(f"  {letter:3} {math.exp(log_prob):9.6f}")

tests = get_recipe("reverse").load_data(translator.config).tests["test"]
report = translator.evaluate(tests)
print(f"\nevaluate: {report.metrics['exact_match']:.1f} % of {report.num_examples} test strings are correct,", end=" ")
print(f"alignment error rate {report.metrics['aer']:.3f}")
