"""Prediction sets of classes and labels."""

import numpy as np
import pytest

from polyleaf import PolyleafClassifier, load_model
from polyleaf.datasets import load

SMALL = {"n_estimators": 20, "max_leaves": 8, "n_jobs": 1, "random_state": 0}


def split_data(name, n_fit, n_held):
    """Split a data set into training, calibration and test rows."""
    X, X_test, y, y_test = load(name).split()
    X, y = np.concatenate([X, X_test]), np.concatenate([y, y_test])
    order = np.random.default_rng(0).permutation(len(X))
    cuts = np.split(order, [n_fit, n_fit + n_held])
    return [(X[rows], y[rows]) for rows in cuts]


def compute_coverage_error(covered, coverage, n_held):
    """Return the difference from the requested coverage, in standard errors of both samples."""
    return (covered.mean() - coverage) / np.sqrt(
        coverage * (1 - coverage) * (1 / n_held + 1 / len(covered))
    )


@pytest.mark.parametrize("coverage", [0.8, 0.9, 0.95])
def test_coverage_of_class_sets(coverage):
    fit, held, test = split_data("letter", 1500, 2000)
    model = PolyleafClassifier(**SMALL).fit(*fit).calibrate(*held, coverage=coverage)
    sets = model.predict_set(test[0])
    covered = sets[np.arange(len(test[1])), np.searchsorted(model.classes_, test[1])]
    assert abs(compute_coverage_error(covered, coverage, 2000)) < 2
    assert sets.dtype == bool and sets.any(axis=1).all()
    # A set of one class holds the predicted class.
    alone = sets.sum(axis=1) == 1
    np.testing.assert_array_equal(
        model.classes_[sets[alone].argmax(axis=1)], model.predict(test[0])[alone]
    )


def test_joint_coverage_of_label_sets():
    fit, held, test = split_data("emotions", 250, 170)
    model = PolyleafClassifier(**SMALL).fit(*fit).calibrate(*held, coverage=0.8)
    sets = model.predict_set(test[0])
    covered = (sets | (test[1] == 0)).all(axis=1)
    assert abs(compute_coverage_error(covered, 0.8, 170)) < 2
    assert sets.sum() < sets.size * 0.9
    depth = np.sort((1 - np.where(held[1] == 1, model.predict_proba(held[0]), 2.0)).max(axis=1))
    cut = depth[int(np.ceil(0.8 * 171)) - 1]
    np.testing.assert_array_equal(sets, 1 - model.predict_proba(test[0]) <= cut)


def test_binary_and_one_vs_rest_sets():
    fit, held, test = split_data("letter", 800, 400)
    names = np.where(fit[1] < "N", "early", "late"), np.where(held[1] < "N", "early", "late")
    model = (
        PolyleafClassifier(**SMALL)
        .fit(fit[0], names[0])
        .calibrate(held[0], names[1], coverage=0.95)
    )
    sets = model.predict_set(test[0])
    assert sets.shape == (len(test[0]), 2) and sets.any(axis=1).all() and not sets.all()
    few = fit[1] < "D"
    rest = PolyleafClassifier(**SMALL, objective="logistic").fit(fit[0][few], fit[1][few])
    held_few = held[1] < "D"
    rest.calibrate(held[0][held_few], held[1][held_few], coverage=0.7)
    assert rest.predict_set(test[0]).shape[1] == 3


def test_weights_missing_labels_and_offsets():
    fit, held, test = split_data("emotions", 250, 170)
    model = PolyleafClassifier(**SMALL, missing_targets="ignore").fit(*fit)
    y = held[1].astype(float)
    y[::3, 0] = np.nan
    is_known = ~np.isnan(y).any(axis=1)
    a = model.calibrate(held[0], y, coverage=0.8).predict_set(test[0])
    b = model.calibrate(held[0][is_known], y[is_known], coverage=0.8).predict_set(test[0])
    c = model.calibrate(*held, is_known.astype(float), coverage=0.8).predict_set(test[0])
    np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(a, c)
    far = np.full((len(held[0]), 6), -9.0)
    model.calibrate(*held, coverage=0.8, offset=far)
    assert model.predict_set(held[0], offset=far).mean() < 0.9 < model.predict_set(held[0]).mean()


def test_files_keep_the_calibration_and_training_drops_it(tmp_path):
    fit, held, test = split_data("letter", 800, 400)
    model = PolyleafClassifier(**SMALL).fit(*fit).calibrate(*held)
    model.save_model(tmp_path / "m")
    np.testing.assert_array_equal(
        load_model(tmp_path / "m").predict_set(test[0]), model.predict_set(test[0])
    )
    on = PolyleafClassifier(**SMALL).fit(*fit, init_model=model)
    for other in (on, PolyleafClassifier(**SMALL).fit(*fit)):
        with pytest.raises(ValueError, match="prediction sets are not calibrated: call calibrate"):
            other.predict_set(test[0])


def test_data_frames_have_class_names():
    fit, held, test = split_data("letter", 800, 400)
    model = PolyleafClassifier(**SMALL).fit(*fit).calibrate(*held).set_output(predict="pandas")
    assert list(model.predict_set(test[0]).columns) == list(model.classes_)


def test_invalid_input_raises():
    fit, held, _ = split_data("letter", 800, 400)
    model = PolyleafClassifier(**SMALL).fit(*fit)
    with pytest.raises(ValueError, match=r"5 rows are too few"):
        model.calibrate(held[0][:5], held[1][:5])
    with pytest.raises(ValueError, match="coverage must lie between 0 and 1, got 90"):
        model.calibrate(*held, coverage=90)
    with pytest.raises(ValueError, match="y has 399 rows, but X has 400"):
        model.calibrate(held[0], held[1][:-1])
    hinge = PolyleafClassifier(**SMALL, objective="squared_hinge").fit(*fit)
    with pytest.raises(AttributeError, match="has no 'predict_proba'"):
        hinge.calibrate(*held)
