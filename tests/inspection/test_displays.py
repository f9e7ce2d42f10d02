"""Displays draw the numbers that they store, and raise for invalid input."""

from functools import partial

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import f1_score, precision_score, recall_score

from polyleaf import Dataset, PolyleafClassifier, PolyleafRegressor, load_model
from polyleaf.datasets import load
from polyleaf.inspection import make_report
from polyleaf.inspection.plotting import (
    CalibrationDisplay,
    CoverageDisplay,
    ImportanceDisplay,
    LearningCurvesDisplay,
    OutputGroupsDisplay,
    OutputsDisplay,
    ThresholdDisplay,
    TreeDisplay,
)
from polyleaf.model import Model
from polyleaf.model.metadata import OUTPUT_GROUPS

matplotlib = pytest.importorskip("matplotlib")

matplotlib.use("Agg")
pyplot = pytest.importorskip("matplotlib.pyplot")

ENERGY, EMOTIONS = load("energy"), load("emotions")
X, X_TEST, Y, Y_TEST = ENERGY.split()
FRAME = pd.DataFrame(X, columns=ENERGY.feature_names)
TARGETS = pd.DataFrame(Y, columns=ENERGY.output_names)


@pytest.fixture(autouse=True)
def closed():
    yield
    pyplot.close("all")


@pytest.fixture(scope="module")
def model():
    test = pd.DataFrame(X_TEST, columns=ENERGY.feature_names)
    names = {"X_val": test, "y_val": Y_TEST}
    return PolyleafRegressor(n_estimators=30, early_stopping_rounds=20).fit(FRAME, TARGETS, **names)


@pytest.fixture(scope="module")
def labeller():
    X, _, Y, _ = EMOTIONS.split()
    labels = pd.DataFrame(Y, columns=EMOTIONS.output_names)
    return PolyleafClassifier(n_estimators=15).fit(X, labels)


def test_learning_curves_equal_evals_result(model, tmp_path):
    drawn = LearningCurvesDisplay.from_estimator(model)
    assert drawn.metric == "rmse" and list(drawn.curves) == ["validation"]
    curve = model.evals_result_["validation"]["rmse"]
    np.testing.assert_array_equal(drawn.lines_[0].get_ydata(), curve)
    assert drawn.best_line_.get_xdata()[0] == model.best_iteration_ + 1
    few = LearningCurvesDisplay({"a": [3.0, 2.0, 1.0]}, "rmse").plot()
    assert all(float(tick).is_integer() for tick in few.ax_.get_xticks())
    each = LearningCurvesDisplay.from_estimator(model, per_output=True)
    labels = [f"validation, {name}" for name in ENERGY.output_names]
    assert [line.get_label() for line in each.lines_] == labels
    curves = model.evals_result_per_output_["validation"]["rmse"]
    np.testing.assert_array_equal(each.lines_[1].get_ydata(), curves[:, 1])
    with pytest.raises(ValueError, match=r"metric must be one of .* got 'mae'"):
        LearningCurvesDisplay.from_estimator(model, "mae")
    model.save_model(tmp_path / "m")
    loaded = load_model(tmp_path / "m")
    again = LearningCurvesDisplay.from_estimator(loaded).lines_[0]
    np.testing.assert_array_equal(again.get_ydata(), drawn.lines_[0].get_ydata())
    with pytest.raises(ValueError, match=r"per output.*eval_set"):
        LearningCurvesDisplay.from_estimator(loaded, per_output=True)
    with pytest.raises(ValueError, match="eval_set"):
        LearningCurvesDisplay.from_estimator(PolyleafRegressor(n_estimators=1).fit(X, Y))


def test_importances_as_bars_or_heat_map(model):
    bars = ImportanceDisplay.from_estimator(model, max_features=3)
    gains = np.sort(model.feature_importance())[::-1]
    np.testing.assert_allclose([bar.get_width() for bar in bars.bars_], gains[:3] / gains.sum())
    assert bars.ax_.get_title() == "3 of 8 features"
    assert bars.ax_.texts[0].get_text() == f"{gains[0] / gains.sum():.3g}"
    names = [label.get_text() for label in bars.ax_.get_yticklabels()]
    assert names[0] == ENERGY.feature_names[int(np.argmax(model.feature_importance()))]
    drawn = ImportanceDisplay.from_estimator(model, "shap", X=FRAME, per_output=True)
    assert drawn.importance.shape == (2, 8) and drawn.image_.get_array().shape == (8, 2)
    assert drawn.ax_.get_xticklabels()[1].get_text() == ENERGY.output_names[1]
    with pytest.raises(ValueError, match="pass them as X"):
        ImportanceDisplay.from_estimator(model, "shap")


def test_outputs_are_compared_with_baselines(model):
    test = pd.DataFrame(X_TEST, columns=ENERGY.feature_names)
    single = PolyleafRegressor(n_estimators=10, multi_strategy="one_output_per_tree")
    single.fit(FRAME, TARGETS)
    drawn = OutputsDisplay.from_estimator(model, test, Y_TEST, others={"one tree each": single})
    assert list(drawn.scores) == ["constant", "model", "one tree each"]
    for label, predicted in (
        ("constant", np.broadcast_to(Y.mean(axis=0), Y_TEST.shape)),
        ("model", model.predict(test)),
        ("one tree each", single.predict(test)),
    ):
        rmse = np.sqrt(((Y_TEST - predicted) ** 2).mean(axis=0))
        np.testing.assert_allclose(drawn.scores[label], rmse, rtol=1e-5)
        heights = [bar.get_height() for bar in drawn.bars_[label]]
        np.testing.assert_allclose(heights, rmse, rtol=1e-5)
    r2 = OutputsDisplay.from_estimator(model, test, Y_TEST, metric="r2")
    assert r2.metric == "r2" and (r2.scores["model"] > 0.9).all()


def test_metrics_of_whole_rows_raise(labeller):
    _, X_test, _, Y_test = EMOTIONS.split()
    with pytest.raises(ValueError, match="metric='subset_accuracy'"):
        OutputsDisplay.from_estimator(labeller, X_test, Y_test, metric="subset_accuracy")
    drawn = OutputsDisplay.from_estimator(labeller, X_test, Y_test)
    assert drawn.metric == "logloss" and (drawn.scores["model"] < drawn.scores["constant"]).all()


def test_calibration_of_probabilities(labeller):
    _, X_test, _, Y_test = EMOTIONS.split()
    drawn = CalibrationDisplay.from_estimator(labeller, X_test, Y_test, n_bins=4)
    assert drawn.names == list(EMOTIONS.output_names) and len(drawn.lines_) == 6
    p = labeller.predict_proba(X_test)[:, 2]
    lowest = np.array_split(np.argsort(p, kind="stable"), 4)[0]
    assert drawn.predicted[2][0] == p[lowest].mean()
    assert drawn.observed[2][0] == Y_test[lowest, 2].mean()
    with pytest.raises(ValueError, match="same shape"):
        CalibrationDisplay.from_predictions(np.ones((3, 1)), np.ones((3, 2)), ["a"])
    with pytest.raises(ValueError, match="predict_proba"):
        CalibrationDisplay.from_estimator(PolyleafRegressor(n_estimators=2).fit(X, Y), X, Y)
    two = PolyleafClassifier(n_estimators=2).fit(X, Y[:, 0] > np.median(Y[:, 0]))
    with pytest.raises(ValueError, match="label 'yes'"):
        CalibrationDisplay.from_estimator(two, X, np.full(len(X), "yes"))


def test_calibration_of_classes_is_one_vs_rest():
    kind = np.digitize(Y[:, 0], [15, 30])
    three = PolyleafClassifier(n_estimators=5).fit(X, np.array(["low", "mid", "high"])[kind])
    drawn = CalibrationDisplay.from_estimator(three, X, np.array(["low", "mid", "high"])[kind])
    assert drawn.names == ["high", "low", "mid"]
    np.testing.assert_allclose(np.mean(drawn.observed[1]), (kind == 0).mean(), atol=0.01)
    two = PolyleafClassifier(n_estimators=5).fit(X, kind > 0)
    assert CalibrationDisplay.from_estimator(two, X, kind > 0).names == ["True"]


def test_missing_labels_are_left_out(labeller):
    _, X_test, _, Y_test = EMOTIONS.split()
    known = np.arange(len(Y_test)) % 3 > 0
    some = np.where(known[:, None], Y_test, np.nan)
    for display in (CalibrationDisplay, ThresholdDisplay):
        drawn = display.from_estimator(labeller, X_test, some)
        expected = display.from_estimator(labeller, X_test[known], Y_test[known])
        for name in ("observed", "predicted", "f1", "precision"):
            np.testing.assert_array_equal(getattr(drawn, name, 0), getattr(expected, name, 0))


def test_largest_share_is_the_class():
    names = np.array(["high", "low", "mid"])
    shares = np.random.default_rng(0).dirichlet(np.ones(3), len(X))
    labels = names[shares.argmax(axis=1)]
    model = PolyleafClassifier(n_estimators=5).fit(X, pd.DataFrame(shares, columns=names))
    drawn = CalibrationDisplay.from_estimator(model, X, shares)
    expected = CalibrationDisplay.from_estimator(model, X, labels)
    assert drawn.names == expected.names
    np.testing.assert_array_equal(drawn.observed, expected.observed)
    pages = [make_report(model, X, y).html for y in (shares, labels)]
    assert pages[0] == pages[1]
    with pytest.raises(ValueError, match="requires an estimator with predict_interval"):
        CoverageDisplay.from_estimator(model, X, shares)


def test_calibration_of_quantiles():
    levels = [0.1, 0.5, 0.9]
    model = PolyleafRegressor("quantile", quantile_alpha=levels, n_estimators=10).fit(X, Y)
    drawn = CalibrationDisplay.from_estimator(model, X_TEST, Y_TEST)
    predicted = model.predict(X_TEST).reshape(len(X_TEST), 2, 3)
    np.testing.assert_array_equal(drawn.predicted[0], levels)
    below = Y_TEST[:, 1, None] <= predicted[:, 1]
    np.testing.assert_allclose(drawn.observed[1], below.mean(axis=0))
    assert drawn.ax_.get_xlabel() == "level of the quantile"


def test_interval_coverage_per_target_and_joint():
    model = PolyleafRegressor(n_estimators=20).fit(X, Y)
    with pytest.raises(ValueError, match=r"not calibrated: call calibrate"):
        CoverageDisplay.from_estimator(model, X_TEST, Y_TEST)
    model.calibrate(X_TEST[:80], Y_TEST[:80], coverage=0.8)
    drawn = CoverageDisplay.from_estimator(model, X_TEST[80:], Y_TEST[80:])
    low, high = np.moveaxis(model.predict_interval(X_TEST[80:]), 2, 0)
    inside = (low <= Y_TEST[80:]) & (Y_TEST[80:] <= high)
    np.testing.assert_allclose(drawn.shares, inside.mean(axis=0))
    assert drawn.joint == pytest.approx(inside.all(axis=1).mean()) and drawn.coverage == 0.8
    assert [bar.get_height() for bar in drawn.bars_] == [*drawn.shares, drawn.joint]
    assert drawn.line_.get_ydata()[0] == 0.8
    np.testing.assert_allclose(drawn.widths, (high - low).mean(axis=0))
    joint = drawn.joint
    assert drawn.joint_error == pytest.approx(np.sqrt(joint * (1 - joint) / len(Y_TEST[80:])))
    ends = [segment[:, 1] for segment in drawn.bars_.errorbar.lines[2][0].get_segments()]
    np.testing.assert_allclose(np.diff(ends[-1]), 4 * drawn.joint_error)
    one = CoverageDisplay.from_predictions(
        [0.0, np.nan, 5.0], [[-1, 1], [0, 1], [0, 1]], 0.9, ["y"]
    )
    assert one.shares == [0.5] and len(one.bars_) == 1
    with pytest.raises(ValueError, match="intervals"):
        CoverageDisplay.from_predictions(np.zeros(3), np.zeros((2, 2)), 0.9, ["y"])


def test_threshold_scores_equal_scikit_learn(labeller):
    _, X_test, _, Y_test = EMOTIONS.split()
    p = labeller.predict_proba(X_test)
    drawn = ThresholdDisplay.from_estimator(
        labeller, X_test, Y_test, output=EMOTIONS.output_names[3]
    )
    for at in (20, 49, 60):
        decided = p[:, 3] >= drawn.thresholds[at]
        truth = Y_test[:, 3]
        assert drawn.f1[at] == pytest.approx(f1_score(truth, decided))
        assert drawn.recall[at] == pytest.approx(recall_score(truth, decided))
        assert drawn.precision[at] == pytest.approx(precision_score(truth, decided))
    assert drawn.f1[np.searchsorted(drawn.thresholds, drawn.best_threshold)] == drawn.f1.max()
    micro = ThresholdDisplay.from_estimator(labeller, X_test, Y_test)
    assert micro.f1[49] == pytest.approx(
        f1_score(Y_test, p >= micro.thresholds[49], average="micro")
    )
    with pytest.raises(ValueError, match="the output 'calm'"):
        ThresholdDisplay.from_estimator(labeller, X_test, Y_test, output="calm")
    with pytest.raises(ValueError, match="output 6"):
        ThresholdDisplay.from_estimator(labeller, X_test, Y_test, output=6)


ONE_EACH = {"multi_strategy": "one_output_per_tree"}


@pytest.mark.parametrize(
    "parameters", [{}, {"leaf": "sparse", "leaf_k": 1}, {"leaf": "linear"}, ONE_EACH]
)
def test_trees_are_drawn_with_their_leaves(parameters):
    model = PolyleafRegressor(n_estimators=3, max_leaves=6, **parameters).fit(FRAME, TARGETS)
    drawn = TreeDisplay.from_estimator(model, 1, row=FRAME.iloc[[5]])
    view = model.model_.trees[1]
    assert len(drawn.strips_) == view.n_leaves and len(drawn.texts_) == view.n_nodes
    order = np.argsort(drawn.position[:, 0], kind="stable")
    left_to_right = [node for node in order if "leaf" in drawn.nodes[node]]
    for strip, node in zip(drawn.strips_, left_to_right, strict=True):
        np.testing.assert_array_equal(
            strip.get_array()[0], view.leaf_values(drawn.nodes[node]["leaf"])
        )
        assert strip.get_clim() == drawn.strips_[0].get_clim()
    assert drawn.nodes[drawn.path[-1]]["leaf"] == model.apply(FRAME.iloc[[5]])[0, 1]
    assert drawn.path[0] == 0
    drawn.figure_.canvas.draw()
    with pytest.raises(ValueError, match="tree=99"):
        TreeDisplay.from_estimator(model, 99)
    with pytest.raises(ValueError, match="row must have one row"):
        TreeDisplay.from_estimator(model, row=FRAME.iloc[:2])


def test_trees_show_answers_values_and_outputs(model):
    drawn = TreeDisplay.from_estimator(model, 0)
    assert drawn.ax_.get_title() == "tree 0: cells are heating_load, cooling_load"
    texts = [text.get_text() for text in drawn.ax_.texts]
    n_splits = sum("leaf" not in node for node in drawn.nodes)
    assert texts.count("yes") == texts.count("no") == n_splits > 0
    leaf = next(node for node in drawn.nodes if "leaf" in node)
    assert any(text.endswith(", ".join(f"{v:.3g}" for v in leaf["value"])) for text in texts)
    assert any(f"gain {drawn.nodes[0]['gain']:.3g}" in text for text in texts)
    letters = load("letter")
    many = PolyleafClassifier(n_estimators=1, max_leaves=3).fit(letters.X[:900], letters.y[:900])
    drawn = TreeDisplay.from_estimator(many)
    assert drawn.ax_.get_title() == "tree 0: cells are 26 outputs, A to Z"
    assert any("and 23 others" in text.get_text() for text in drawn.texts_)


def test_tree_nodes_do_not_overlap(model):
    drawn = TreeDisplay.from_estimator(model.model_, -1)
    assert drawn.tree == model.model_.n_trees - 1
    places = {tuple(place) for place in drawn.position}
    assert len(places) == len(drawn.nodes)


def test_long_names_are_shortened_in_the_middle():
    long = FRAME.rename(
        columns={name: f"{name} of the building as it stood in 2009" for name in FRAME}
    )
    drawn = TreeDisplay.from_estimator(PolyleafRegressor(n_estimators=1).fit(long, TARGETS))
    rules = [text.get_text().split("\n")[0] for text in drawn.texts_ if "<=" in text.get_text()]
    assert rules and all(len(rule) <= 23 and rule.endswith(" in 2009") for rule in rules)


def test_dollar_signs_in_names_are_kept():
    frame = FRAME.rename(columns={ENERGY.feature_names[0]: "cost in $ of $\\frac"})
    drawn = TreeDisplay.from_estimator(PolyleafRegressor(n_estimators=1).fit(frame, TARGETS))
    drawn.figure_.canvas.draw()
    assert any("$" in text.get_text() for text in drawn.texts_)


def test_formulas_in_names_are_text():
    frame = FRAME.rename(columns={ENERGY.feature_names[0]: "$a_b^$"})
    targets = pd.DataFrame(Y, columns=["$c_$", "$\\frac$"])
    model = PolyleafRegressor(n_estimators=2, output_groups=2).fit(frame, targets)
    model.fit(frame, targets, eval_set=[(frame, targets)], eval_names=["$d_$"])
    model.calibrate(frame, targets)
    classes = PolyleafClassifier(n_estimators=2).fit(X, np.where(Y[:, 0] > 15, "$a_$", "b"))
    for drawn in (
        ImportanceDisplay.from_estimator(model),
        OutputGroupsDisplay.from_estimator(model),
        OutputsDisplay.from_estimator(model, frame, targets),
        LearningCurvesDisplay.from_estimator(model),
        CoverageDisplay.from_estimator(model, frame, targets),
        CalibrationDisplay.from_predictions(np.eye(4), np.eye(4), ["$a_$"] * 4),
        ThresholdDisplay.from_estimator(classes, X, classes.predict(X)),
    ):
        drawn.figure_.canvas.draw()


def test_given_axes_are_used(model):
    figure, ax = pyplot.subplots()
    drawn = ImportanceDisplay.from_estimator(model, ax=ax)
    assert drawn.ax_ is ax and drawn.figure_ is figure


def counts_of_exposure(n=300):
    rng = np.random.default_rng(0)
    X, exposure = rng.normal(size=(n, 3)), rng.exponential(50, n) + 1
    counts = rng.poisson(
        exposure[:, None] * np.exp(np.stack([0.3 * X[:, 0], -0.3 * X[:, 1]], axis=1))
    )
    return X, counts, np.log(exposure)


def test_outputs_with_offsets():
    X, y, offset = counts_of_exposure()
    model = PolyleafRegressor(objective="poisson", n_estimators=5).fit(X, y, offset=offset)
    plain = PolyleafRegressor(objective="poisson", n_estimators=5).fit(X, y)
    show = partial(OutputsDisplay.from_estimator, model, metric="rmse", others={"plain": plain})
    shown = show(X, y, offset=offset)
    for name, predicted in {
        "model": model.predict(X, offset=offset),
        "constant": np.exp(model.model_.base_score + offset[:, None]),
        "plain": plain.predict(X),
    }.items():
        rmse = np.sqrt(np.mean((predicted - y) ** 2, axis=0))
        np.testing.assert_allclose(shown.scores[name], rmse, rtol=1e-6)
    held = show(Dataset(X, y, offset=offset, reference=model.model_.mapper), y)
    np.testing.assert_array_equal(held.scores["model"], shown.scores["model"])
    with pytest.warns(UserWarning, match="offset"):
        without = show(X, y)
    assert (without.scores["model"] > 2 * shown.scores["model"]).all()


def test_calibration_and_coverage_with_offsets():
    X, y, offset = counts_of_exposure()
    labels = (y + offset[:, None] > 60).astype(int)
    labeller = PolyleafClassifier(n_estimators=5).fit(X, labels, offset=offset)
    chances = labeller.predict_proba(X, offset=offset)
    np.testing.assert_array_equal(
        CalibrationDisplay.from_estimator(labeller, X, labels, offset=offset).predicted,
        CalibrationDisplay.from_predictions(labels, chances, ["0", "1"]).predicted,
    )
    np.testing.assert_array_equal(
        ThresholdDisplay.from_estimator(labeller, X, labels, offset=offset, output=1).f1,
        ThresholdDisplay.from_predictions(labels[:, 1], chances[:, 1]).f1,
    )
    levels = PolyleafRegressor(objective="quantile", quantile_alpha=[0.2, 0.8], n_estimators=5)
    levels.fit(X, y[:, 0], offset=offset).calibrate(X, y[:, 0], offset=offset)
    found = CalibrationDisplay.from_estimator(levels, X, y[:, 0], offset=offset).observed[0]
    np.testing.assert_array_equal(
        found, (y[:, :1] <= levels.predict(X, offset=offset)).mean(axis=0)
    )
    intervals = levels.predict_interval(X, offset=offset)
    np.testing.assert_array_equal(
        CoverageDisplay.from_estimator(levels, X, y[:, 0], offset=offset).widths,
        CoverageDisplay.from_predictions(y[:, 0], intervals, 0.9, ["y"]).widths,
    )
    for display, model, truth in (
        (CalibrationDisplay, labeller, labels),
        (ThresholdDisplay, labeller, labels),
        (CalibrationDisplay, levels, y[:, 0]),
        (CoverageDisplay, levels, y[:, 0]),
    ):
        with pytest.warns(UserWarning, match="offset"):
            display.from_estimator(model, X, truth)


def test_output_groups_are_drawn_with_their_trials():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4)).astype(np.float32)
    y = X[:, [0, 1, 0]] + 0.3 * rng.normal(size=(300, 3))
    auto = PolyleafRegressor(n_estimators=10, output_groups="auto", random_state=0).fit(X, y)
    drawn = OutputGroupsDisplay.from_estimator(auto)
    labels = [label.get_text() for label in drawn.ax_.get_yticklabels()]
    counts = [label.split(" group")[0] for label in labels]
    assert counts == ["1", "1 and 2", "1 and 3", "2", "3"]
    assert all("error x" in label and "time x" in label for label in labels)
    assert all("% of the gain lost" in label for label in labels)
    (chosen,) = [i for i, label in enumerate(labels) if "chosen" in label]
    assert drawn.trials[chosen]["groups"] == auto.output_groups_ == drawn.groups
    assert np.asarray(drawn.image_.get_array()).shape == (5, 3)
    again = Model.from_bytes(auto.model_.to_bytes())
    assert again.metadata[OUTPUT_GROUPS] == drawn.trials
    listed = PolyleafRegressor(n_estimators=3, output_groups=[[0, 2], [1]]).fit(X, y)
    fixed = OutputGroupsDisplay.from_estimator(listed)
    assert np.asarray(fixed.image_.get_array()).tolist() == [[0, 1, 0]]
