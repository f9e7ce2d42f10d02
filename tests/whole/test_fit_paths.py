"""All ways to train give the fitted attributes and predictions of a plain call of `fit`."""

import sys

import numpy as np
import pytest

from polyleaf import Dataset, PolyleafClassifier, PolyleafRegressor
from polyleaf.callbacks import Callback
from polyleaf.training import hold_out_search

ROUNDS, STOP = 6, 4
SMALL = {"max_leaves": 4, "random_state": 0, "n_jobs": 1}
METHODS = ("predict", "predict_proba", "predict_raw", "decision_function", "apply")

rng = np.random.default_rng(0)
X = rng.normal(size=(150, 4))
LABELS = (X[:, :3] + 0.7 * rng.normal(size=(150, 3)) > 0.8).astype(int)
CLASSES = np.array(["no", "yes"])[LABELS[:, 0]]
Y = X[:, :2] + rng.normal(size=(150, 2))

CASES = {
    "threshold": (PolyleafClassifier, CLASSES, {"threshold": 0.1}),
    "label thresholds": (PolyleafClassifier, LABELS, {"threshold": {1: 0.2, 2: 0.7}}),
    "threshold by F1": (PolyleafClassifier, LABELS, {"threshold": "f1"}),
    "calibrated quantiles": (
        PolyleafRegressor,
        Y,
        {"objective": "quantile", "quantile_alpha": [0.1, 0.9], "calibrate_quantiles": True},
    ),
    "standardised": (PolyleafRegressor, Y * 1000, {"normalize_targets": True}),
}


@pytest.fixture(params=CASES)
def case(request):
    cls, y, parameters = CASES[request.param]
    return cls, y, SMALL | parameters


def list_attributes(estimator):
    names = [n for n in dir(estimator) if n.endswith("_") and not n.endswith("__")]
    found = {name: getattr(estimator, name, None) for name in names if not name.startswith("_")}
    drop = ("model_", "feature_importances_")
    return {name: value for name, value in found.items() if name not in drop}


def assert_same_fit(estimator, expected):
    found, required = list_attributes(estimator), list_attributes(expected)
    assert found.keys() == required.keys()
    for name, value in required.items():
        np.testing.assert_equal(found[name], value, err_msg=name)
    for method in METHODS:
        if hasattr(expected, method):
            values = [getattr(each, method)(X) for each in (estimator, expected)]
            np.testing.assert_array_equal(*values, err_msg=method)
    assert estimator.model_.metadata.keys() == expected.model_.metadata.keys()


class Interrupt(Callback):
    """Raise KeyboardInterrupt after `STOP` rounds."""

    def before_iteration(self, model, epoch, evals_log):
        if epoch == STOP:
            raise KeyboardInterrupt
        return False


@pytest.mark.parametrize("evaluated", [False, True])
@pytest.mark.parametrize("mode", ["keep", "raise"])
def test_interrupted_fit(case, mode, evaluated):
    cls, y, parameters = case
    data = {"eval_set": [(X[:60], y[:60])]} if evaluated else {}
    expected = cls(n_estimators=STOP, **parameters).fit(X, y, **data)
    estimator = cls(n_estimators=ROUNDS, on_interrupt=mode, **parameters)
    error = pytest.raises(KeyboardInterrupt) if mode == "raise" else pytest.warns(UserWarning)
    with error:
        estimator.fit(X, y, callbacks=[Interrupt()], **data)
    assert_same_fit(estimator, expected)


@pytest.mark.parametrize("mode", ["keep", "raise"])
def test_interrupted_choice_of_n_estimators(case, mode, monkeypatch):
    class Impatient(hold_out_search._HoldOutStopper):
        def after_iteration(self, model, epoch, evals_log):
            if epoch == STOP:
                raise KeyboardInterrupt
            return False

    cls, y, parameters = case
    monkeypatch.setattr(hold_out_search, "_HoldOutStopper", Impatient)
    estimator = cls(on_interrupt=mode, **parameters)
    error = pytest.raises(KeyboardInterrupt) if mode == "raise" else pytest.warns(UserWarning)
    with error:
        estimator.fit(X, y)
    assert estimator.n_iter_ in (STOP, STOP + 1)
    asked = parameters.get("threshold")
    if isinstance(asked, float):
        assert estimator.thresholds_.tolist() == [asked]
    elif isinstance(asked, dict):
        assert estimator.thresholds_.tolist() == [0.5, 0.2, 0.7]
    elif asked == "f1":
        assert (estimator.thresholds_ != 0.5).all()
    elif "calibrate_quantiles" in parameters:
        monkeypatch.setattr("polyleaf.estimators.base.quantile_shifts", lambda record: 0.0)
        with pytest.raises(KeyboardInterrupt):
            plain = cls(**parameters)
            plain.fit(X, y)
        assert (estimator.predict(X) != plain.predict(X)).any()


@pytest.mark.parametrize("how", ["warm_start", "init_model", "file"])
def test_continued_fit(case, how, tmp_path):
    cls, y, parameters = case
    expected = cls(n_estimators=ROUNDS, **parameters).fit(X, y)
    if how == "warm_start":
        estimator = cls(n_estimators=STOP, warm_start=True, **parameters).fit(X, y)
        estimator.set_params(n_estimators=ROUNDS).fit(X, y)
    else:
        other = {"threshold": 0.3} if cls is PolyleafClassifier else {}
        start = cls(**parameters | other, n_estimators=STOP).fit(X, y)
        if how == "file":
            start.save_model(tmp_path / "start.polyleaf")
            start = tmp_path / "start.polyleaf"
        estimator = cls(n_estimators=ROUNDS - STOP, **parameters).fit(X, y, init_model=start)
    assert_same_fit(estimator, expected)


def test_dataset(case):
    cls, y, parameters = case
    expected = cls(n_estimators=ROUNDS, **parameters).fit(X, y)
    assert_same_fit(cls(n_estimators=ROUNDS, **parameters).fit(Dataset(X), y), expected)
    loaded = cls.load_model(expected.save_model())
    assert_same_fit(loaded, expected)
    assert loaded.get_params()["n_estimators"] == ROUNDS


def test_continued_model_stores_parameters_of_the_last_fit():
    start = PolyleafRegressor(n_estimators=STOP, **SMALL).fit(X, Y)
    after = PolyleafRegressor(n_estimators=1, learning_rate=0.3, **SMALL)
    after.fit(X, Y, init_model=start)
    loaded = PolyleafRegressor.load_model(after.save_model())
    assert loaded.learning_rate == 0.3 and loaded.n_estimators == 1


OPTIONAL = (
    "binned_data.target_encoding callbacks metrics.metric model.initial sketching.projections "
    "training.auto_rounds training.derived_columns training.evaluation "
    "training.hold_out_search training.initial_scores training.members training.output_groups "
    "training.quality user_data.offsets user_data.weights"
).split()


def test_plain_fit_enters_no_optional_step():
    entered = set()

    def note(frame, event, argument):
        if event == "call" and frame.f_code.co_filename.endswith(".py"):  # written, not generated
            entered.add(frame.f_globals.get("__name__", "").removeprefix("polyleaf."))

    PolyleafRegressor(n_estimators=1).fit(X, Y)  # imports what is imported late
    sys.setprofile(note)
    try:
        PolyleafRegressor(n_estimators=2).fit(X, Y)
    finally:
        sys.setprofile(None)
    assert "training.boosting" in entered
    assert entered & set(OPTIONAL) == set()
