"""Labels that training did not have, and missing labels, in scores, reports and evaluation sets."""

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import accuracy_score, f1_score

from polyleaf import PolyleafClassifier, PolyleafMultiTask
from polyleaf.inspection import make_report
from polyleaf.metrics._multitask import compute_scores
from polyleaf.runtime.row_data import RowData

RNG = np.random.default_rng(0)
X = RNG.normal(size=(200, 3))
CLASSES = np.array(list("abc"))[np.digitize(X[:, 0], [-0.5, 0.5])]
NEW = np.where(np.arange(200) == 0, "E", CLASSES)


@pytest.fixture(scope="module")
def tasks():
    Y = pd.DataFrame({"c": CLASSES, "v": X[:, 1] + X[:, 2]})
    return PolyleafMultiTask(n_estimators=5).fit(X, Y), Y


def test_a_new_label_is_missing_for_its_task_only(tasks):
    model, Y = tasks
    new, missing = Y.assign(c=NEW), Y.assign(c=np.where(NEW == "E", None, NEW))
    lenient = PolyleafMultiTask(n_estimators=5, missing_targets="ignore").fit(X, Y)
    for method in ("score", "d2_scores"):
        with pytest.warns(UserWarning, match="'c' of .* such as 'E', in 1 rows: .* as missing"):
            found = getattr(model, method)(X, new)
        assert found == getattr(lenient, method)(X, missing)
    with pytest.warns(UserWarning, match="such as 'E'"):
        model.fit(X, Y, eval_set=[(X, new)])
    reference = lenient.fit(X, Y, eval_set=[(X, missing)])
    assert model.evals_result_ == reference.evals_result_
    with pytest.warns(UserWarning, match="such as 'E'"):
        make_report(model, X, new)


def test_a_missing_label_of_a_task_names_the_remedy(tasks):
    with pytest.raises(ValueError, match='missing_targets="ignore" of PolyleafMultiTask'):
        PolyleafMultiTask(n_estimators=2).fit(X, tasks[1].assign(c=np.where(NEW == "E", None, NEW)))


def test_a_classifier_counts_a_new_label_as_an_error():
    model = PolyleafClassifier(n_estimators=5).fit(X, CLASSES)
    assert model.score(X, NEW) == accuracy_score(NEW, model.predict(X))
    make_report(model, X, NEW)


def test_scores_of_labels_leave_missing_ones_out():
    Y = (X[:, :2] > 0).astype(float)
    predicted = (X[:, :2] + RNG.normal(size=(200, 2)) > 0).astype(int)
    p = np.clip(predicted * 0.8 + 0.1, 0, 1)
    Y[:50, 0] = Y[25:60, 1] = np.nan
    known = ~np.isnan(Y)
    found = compute_scores("multilabel", RowData(Y), predicted, p)
    each = [f1_score(Y[known[:, k], k], predicted[known[:, k], k]) for k in (0, 1)]
    assert found["macro F1"] == pytest.approx(np.mean(each))
    rows = known.any(axis=1)
    right = np.where(known, Y == predicted, np.nan)[rows]
    assert found["label accuracy"] == pytest.approx(np.nanmean(right, axis=1).mean())
    assert found["subset accuracy"] == pytest.approx((right != 0).all(axis=1).mean())
    true = np.where(known, np.where(Y == 1, p, 1 - p), np.nan)[rows]
    assert found["log loss"] == pytest.approx(-np.nanmean(np.log(true), axis=1).mean())


def test_a_report_takes_missing_labels():
    Y = (X[:, :2] > 0).astype(float)
    Y[::5, 0] = np.nan
    model = PolyleafClassifier(n_estimators=5, missing_targets="ignore").fit(X, Y)
    make_report(model, X, Y)
