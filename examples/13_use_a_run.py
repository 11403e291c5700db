"""13. Use a run: translate, see where each letter looked, and judge translations that somebody else made.

The recipe `reverse` writes letters from behind, and learns it in seconds. What is done with it here goes for every
run, also for those that `regard train` made: `regard.load("runs/dates")`.
"""

import math
from tempfile import TemporaryDirectory

import regard
from regard.tasks import RECIPES, evaluate, train
from regard.viewing import heatmap

with TemporaryDirectory() as run:
    train("reverse", run, max_length=6, batch_tokens=512, steps=220, log=print)
    translator = regard.load(run)

print("\ntranslate:", translator.translate("regard"), translator.translate(["on", "time"]))

seen = translator.align("regard", "drager")  # also of a translation that the model did not make
words = seen.words()
print("\nalign: each row is a letter that is written, each column one that is read")
print(heatmap(words.weights[0, 0], words.target, words.source))
print("links (read, written):", sorted(seen.links()))

print("\nsearch: the three best of a beam of five, with their probabilities")
for one in translator.search(["star"], translator.decoding_config(beam=5, best=3))[0]:
    print(f"  {translator.to_text(one):6} {math.exp(one.log_prob):9.6f}")

print("\nscore: which letter of a wrong translation surprises the model?")
wrong = translator.score(["star"], ["rbts"])[0]
for letter, log_prob in zip([*"rbts", "end"], wrong.log_probs, strict=True):
    print(f"  {letter:3} {math.exp(log_prob):9.6f}")

tests = RECIPES["reverse"].load_data(translator.config).tests["test"]
report = evaluate(translator, tests)
print(f"\nevaluate: {report['exact']:.1f} % of {report['sentences']} new words are right,", end=" ")
print(f"alignment error rate {report['aer']:.3f}")
