"""16. Attention as a scikit-learn estimator: the data of example 14 with cross-validation, pipelines and a figure.

Needs regard[sklearn]. With a file name (.png or .svg) as its argument, it also draws the curve and its weights, which
needs regard[draw].
"""

import csv
import sys
from pathlib import Path

import numpy as np
import torch
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from regard.models import KernelRegression
from regard.viewing import figures, terminal

with open(Path(__file__).parent / "mcycle.csv", encoding="utf-8") as lines:
    rows = list(csv.DictReader(line for line in lines if not line.startswith("#")))
times, accel = (np.array([float(row[name]) for row in rows]) for name in ("times", "accel"))
x = times[:, None]

print("kernel         learned width   leave-one-out error")
for kernel in ("average", "gaussian", "boxcar", "epanechnikov"):
    model = KernelRegression(kernel, width="learned", out_of_reach="nearest").fit(x, accel)
    error = np.sqrt(np.mean(model.leave_one_out() ** 2))
    width = "any" if kernel == "average" else f"{model.width_[0]:.2f} ms"
    print(f"{kernel:14} {width:13} {error:8.2f} g")

# It works in pipelines, searches and cross-validation, where each fold learns its own width.
folds = KFold(10, shuffle=True, random_state=0)
search = GridSearchCV(
    make_pipeline(StandardScaler(), KernelRegression(out_of_reach="nearest")),
    {
        "kernelregression__kernel": ["gaussian", "boxcar", "epanechnikov"],
        "kernelregression__width": np.geomspace(0.02, 1, 12),
    },
    cv=folds,
).fit(x, accel)
best = search.best_estimator_[-1]
print(f"\nbest of the grid search: {best.kernel}, width {best.width:.2f} standard deviations")
print(f"R2 in ten folds: {search.best_score_:.2f} by grid search,", end=" ")
learned = KernelRegression(width="learned")
print(f"{cross_val_score(learned, x, accel, cv=folds).mean():.2f} with a learned width\n")

learned.fit(x, accel)
query = np.linspace(times.min(), times.max(), 120)[:, None]
curve = [torch.from_numpy(part) for part in (times, accel, query, learned.predict(query))]
print(terminal.regression_curve(*curve))
if sys.argv[1:]:
    weights = torch.from_numpy(learned.weights(query))
    figure = figures.regression_curve(*curve, weights, axis_labels=("milliseconds", "g"), title="A motorcycle crash")
    print("wrote", figure.save(sys.argv[1]))
