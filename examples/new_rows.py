"""New rows: one feature moves, and a class appears that the model has never seen.

`measure_drift` names the feature by the counts that the model keeps of its training rows. Training
that goes on widens the model by the class; its old scores stay the same bits.
"""

import warnings

import numpy as np

from polyleaf import PolyleafClassifier
from polyleaf.datasets import load
from polyleaf.inspection import measure_drift


def main() -> dict[str, float]:
    X, X_test, letters, letters_test = load("letter").split()
    first, later = slice(0, 4000), slice(4000, 6000)
    is_known = letters[first] != "Q"
    model = PolyleafClassifier(n_estimators=40, max_leaves=16, random_state=0)
    model.fit(X[first][is_known], letters[first][is_known])

    moved = X[later].astype(np.float64)
    moved[:, 3] += 2
    named = {
        name: np.flatnonzero(measure_drift(model, rows).is_drifted).tolist()
        for name, rows in (("the next rows", X[later]), ("with a feature moved", moved))
    }
    for name, features in named.items():
        print(f"features that have drifted, {name}: {features or 'none'}")

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*it is widened by outputs")
        wide = PolyleafClassifier(n_estimators=20, max_leaves=16, random_state=0)
        wide.fit(X[later], letters[later], init_model=model)
    known = wide.classes_ != "Q"
    same = wide.model_.predict_raw(X_test, 0, 40)[:, known] == model.model_.predict_raw(X_test)
    is_new = letters_test == "Q"
    found = float((wide.predict(X_test)[is_new] == "Q").mean())
    print(f"the new letter is found in {found:.0%} of its test rows, {wide.n_iter_} rounds in all")
    return {
        "named": len(named["with a feature moved"]),
        "named without a change": len(named["the next rows"]),
        "same scores": bool(same.all()),
        "found": found,
        "accuracy": wide.score(X_test, letters_test),
        "accuracy before": model.score(X_test, letters_test),
    }


if __name__ == "__main__":
    main()
