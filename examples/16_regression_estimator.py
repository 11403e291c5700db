"""16. Attention as an estimator of scikit-learn: the crash again, with cross-validation, pipelines and a picture.

Needs regard[sklearn]. Given the name of a file, .png or .svg, it also draws the curve and its weights there, which
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
from regard.viewing import figures as pictures
from regard.viewing import terminal

with open(Path(__file__).parent / "mcycle.csv", encoding="utf-8") as lines:
    rows = list(csv.DictReader(line for line in lines if not line.startswith("#")))
times, accel = (np.array([float(row[name]) for row in rows]) for name in ("times", "accel"))
x = times[:, None]

print("kernel         learned width   error of predicting each point from the others")
for kernel in ("average", "gaussian", "boxcar", "epanechnikov"):
    model = KernelRegression(kernel, width="learned", out_of_reach="nearest").fit(x, accel)
    error = np.sqrt(np.mean(model.leave_one_out() ** 2))
    width = "any" if kernel == "average" else f"{model.width_[0]:.2f} ms"
    print(f"{kernel:14} {width:13} {error:8.2f} g")

# It goes wherever an estimator goes: into pipelines, searches, and folds that learn a width each.
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
print(f"\nfound by searching: {best.kernel}, width {best.width:.2f} of a standard deviation")
print(f"variance explained in ten folds: {search.best_score_:.2f} by searching,", end=" ")
learned = KernelRegression(width="learned")
print(f"{cross_val_score(learned, x, accel, cv=folds).mean():.2f} by learning\n")

learned.fit(x, accel)
query = np.linspace(times.min(), times.max(), 120)[:, None]
curve = [torch.from_numpy(part) for part in (times, accel, query, learned.predict(query))]
print(terminal.regression_curve(*curve))
if sys.argv[1:]:
    weights = torch.from_numpy(learned.weights(query))
    picture = pictures.regression_curve(*curve, weights, axis_labels=("milliseconds", "g"), title="A motorcycle crash")
    print("wrote", picture.save(sys.argv[1]))
