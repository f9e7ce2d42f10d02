"""Decision thresholds of labels and of two classes."""

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import f1_score

from polyleaf import PolyleafClassifier, PolyleafClassifierCV, load_model
from polyleaf.export import to_c, to_onnx
from polyleaf.metrics._classification import best_f1_threshold

SMALL = {"n_estimators": 15, "max_leaves": 8, "n_jobs": 1, "random_state": 0}
RNG = np.random.default_rng(0)
N = 900
X = RNG.standard_normal((N, 6))
Y = (X[:, :3] + RNG.standard_normal((N, 3)) > [1.8, 1.6, 1.4]).astype(int)  # rare
HALF = np.arange(N) % 2 == 0


def classifier(**parameters):
    return PolyleafClassifier(**SMALL | parameters)


@pytest.mark.parametrize("threshold", [0.3, {0: 0.2, 2: 0.4}, {"b": 0.1}])
def test_predict_applies_the_threshold(threshold, tmp_path):
    y = pd.DataFrame(Y, columns=["a", "b", "c"])
    model, plain = classifier(threshold=threshold).fit(X, y), classifier().fit(X, y)
    expected = {0.3: [0.3] * 3}.get(threshold) if not isinstance(threshold, dict) else None
    if expected is None:
        at = {"a": 0, "b": 1, "c": 2}
        expected = [0.5] * 3
        for label, t in threshold.items():
            expected[at.get(label, label)] = t
    assert model.thresholds_.tolist() == expected
    p = plain.predict_proba(X)
    np.testing.assert_array_equal(model.predict_proba(X), p)
    np.testing.assert_array_equal(model.predict(X), (p > expected).astype(int))
    np.testing.assert_array_equal(list(model.staged_predict(X))[-1], model.predict(X))
    np.testing.assert_array_equal(model.predictor()(X), model.predict(X))
    model.save_model(tmp_path / "m")
    np.testing.assert_array_equal(load_model(tmp_path / "m").predict(X), model.predict(X))
    assert load_model(tmp_path / "m").thresholds_.tolist() == expected


def test_default_threshold_is_not_stored():
    model = classifier().fit(X, Y)
    assert model.thresholds_.tolist() == [0.5] * 3 and "thresholds" not in model.model_.metadata


@pytest.mark.parametrize("threshold", ["f1", "f1_macro"])
def test_threshold_is_chosen_on_the_last_evaluation_set(threshold):
    held = X[~HALF], Y[~HALF]
    weight = RNG.integers(1, 4, len(held[0]))
    model = classifier(threshold=threshold, early_stopping_rounds=3)
    model.fit(X[HALF], Y[HALF], X_val=held[0], y_val=held[1], sample_weight_val=weight)
    p = model.predict_proba(held[0])
    expected = best_f1_threshold(p, held[1], weight, threshold == "f1_macro")
    assert model.thresholds_.tolist() == [expected] * 3 != [0.5] * 3
    average = "macro" if threshold == "f1_macro" else "micro"
    scores = [
        f1_score(held[1], p > t, average=average, sample_weight=weight) for t in (expected, 0.5)
    ]
    assert scores[0] > scores[1]


@pytest.mark.parametrize(
    "options", [{}, {"class_weight": "balanced"}, {"boosting_step": "layer"}], ids=str
)
def test_threshold_is_chosen_by_cross_fitting(options):
    """Without an evaluation set: three models, each trained on two folds with the bins and label
    weights of all rows."""
    from polyleaf import Dataset

    if "boosting_step" in options:
        options = options | {"grow_policy": "depthwise", "max_depth": 3}
    weight = RNG.integers(1, 3, N).astype(float)
    data = Dataset(X, sample_weight=weight)
    model = classifier(threshold="f1", **options).fit(data, Y, weight)
    fold = np.random.default_rng(0).permutation(N) % 3
    p = np.empty(Y.shape)
    for j in range(3):
        rest = {"class_weight": None} if "class_weight" in options else {}
        w = weight * (fold != j)
        if rest:  # those of all rows
            ones = np.average(Y, axis=0, weights=weight)
            w = w[:, None] * np.where(Y == 1, 0.5 / ones, 0.5 / (1 - ones))
        p[fold == j] = classifier(**options | rest).fit(data, Y, w).predict_proba(data)[fold == j]
    assert model.thresholds_[0] == pytest.approx(best_f1_threshold(p, Y, weight), abs=1e-6)


def test_threshold_improves_f1_on_new_rows():
    model = classifier(threshold="f1", n_estimators=40).fit(X[HALF], Y[HALF])
    p = model.predict_proba(X[~HALF])
    better = f1_score(Y[~HALF], model.predict(X[~HALF]), average="micro")
    assert better > f1_score(Y[~HALF], p > 0.5, average="micro") + 0.05


def test_thresholds_of_two_classes():
    y = np.where(Y[:, 0] == 1, "yes", "no")
    for threshold, expected in ((0.2, 0.2), ({"yes": 0.2}, 0.2), ({"no": 0.8}, 0.2)):
        model = classifier(threshold=threshold).fit(X, y)
        assert model.thresholds_ == pytest.approx([expected])
        labels = np.where(model.predict_proba(X)[:, 1] > expected, "yes", "no")
        np.testing.assert_array_equal(model.predict(X), labels)
        assert model.score(X, y) == np.mean(labels == y)
    chosen = classifier(threshold="f1").fit(X[HALF], y[HALF])
    plain = chosen.predict_proba(X[~HALF])[:, 1] > 0.5
    assert f1_score(Y[~HALF, 0], chosen.predict(X[~HALF]) == "yes") > f1_score(Y[~HALF, 0], plain)


def test_missing_labels_are_ignored():
    y = Y.astype(float)
    y[RNG.random(y.shape) < 0.3] = np.nan
    model = classifier(threshold="f1", missing_targets="ignore")
    model.fit(X[HALF], y[HALF], eval_set=[(X[~HALF], y[~HALF])])
    p, is_known = model.predict_proba(X[~HALF]), ~np.isnan(y[~HALF])
    assert model.thresholds_[0] == best_f1_threshold(p, np.nan_to_num(y[~HALF]), is_known)


def test_choose_threshold_with_and_without_labels():
    model = classifier().fit(X[HALF], Y[HALF])
    p = model.predict_proba(X[~HALF])
    model.choose_threshold(X[~HALF], Y[~HALF], by="f1_macro")
    assert model.thresholds_[0] == best_f1_threshold(p, Y[~HALF], macro=True)
    model.choose_threshold(X[~HALF])
    assert model.thresholds_[0] == best_f1_threshold(p, p) != 0.5
    assert f1_score(Y[~HALF], model.predict(X[~HALF]), average="micro") > f1_score(
        Y[~HALF], p > 0.5, average="micro"
    )
    with pytest.raises(ValueError, match="by must be"):
        model.choose_threshold(X, Y, by="accuracy")
    with pytest.raises(ValueError, match="y has 3 rows, but X has 900"):
        model.choose_threshold(X, Y[:3])


def test_continued_training_updates_the_threshold():
    model = classifier(threshold=0.2, warm_start=True).fit(X, Y)
    model.set_params(threshold=0.5, n_estimators=20).fit(X, Y)
    assert model.thresholds_.tolist() == [0.5] * 3


def test_threshold_with_offsets_on_any_number_of_threads():
    offset = RNG.standard_normal((N, 3))
    one, two = (classifier(threshold="f1", n_jobs=n).fit(X, Y, offset=offset) for n in (1, 2))
    assert one.thresholds_.tolist() == two.thresholds_.tolist()
    is_above = one.predict_proba(X, offset=offset) > one.thresholds_
    np.testing.assert_array_equal(one.predict(X, offset=offset), is_above.astype(int))


def test_exported_c_code_applies_the_threshold(tmp_path):
    model = classifier(threshold=0.2).fit(X, Y[:, 0])
    to_c(model, tmp_path / "m.h")
    cut = np.log(0.2) - np.log1p(-0.2)
    assert f"return score[0] > {float(cut).hex()};" in (tmp_path / "m.h").read_text()


@pytest.mark.parametrize("y", [Y, Y[:, 0]], ids=["labels", "two classes"])
def test_exported_onnx_applies_the_threshold(y):
    onnxruntime = pytest.importorskip("onnxruntime")
    model = classifier(threshold=0.2).fit(X, y)
    session = onnxruntime.InferenceSession(to_onnx(model).SerializeToString())
    (labels,) = session.run(["label"], {"X": X.astype(np.float32)})
    np.testing.assert_array_equal(labels.reshape(y.shape), model.predict(X.astype(np.float32)))


def test_search_chooses_a_threshold():
    model = PolyleafClassifierCV(n_candidates=1, n_estimators=10, threshold="f1", n_jobs=1).fit(
        X, Y
    )
    assert model.thresholds_[0] != 0.5


@pytest.mark.parametrize("word, power", [("balanced", 1.0), ("sqrt", 0.5)])
@pytest.mark.parametrize("is_weighted", [False, True])
def test_scale_pos_weight_by_name(word, power, is_weighted):
    w = RNG.integers(1, 4, N).astype(float) if is_weighted else np.ones(N)
    model = classifier(scale_pos_weight=word).fit(X, Y, w)
    expected = ((w @ (1 - Y)) / (w @ Y)) ** power
    np.testing.assert_allclose(model.model_.objective.scale_pos_weight, expected, rtol=1e-6)
    numbers = classifier(scale_pos_weight=list(model.model_.objective.scale_pos_weight)).fit(
        X, Y, w
    )
    np.testing.assert_array_equal(numbers.predict_proba(X), model.predict_proba(X))
    on = classifier(scale_pos_weight=word, n_estimators=2)
    on.fit(X[HALF], Y[HALF], w[HALF], init_model=model)  # keeps the weights of `model`
    assert on.model_.objective == model.model_.objective


def test_constant_labels_are_not_balanced():
    y = np.column_stack([Y[:, 0], np.ones(N, int), np.zeros(N, int)])
    fitted = classifier(scale_pos_weight="balanced").fit(X, y).model_.objective.scale_pos_weight
    assert fitted[1:] == (1.0, 1.0) and fitted[0] > 1


def test_class_weights_by_label_name():
    y = pd.DataFrame(Y, columns=["a", "b", "c"])
    by_name = classifier(class_weight={"b": {1: 5.0}, 2: {0: 0.5}}).fit(X, y)
    as_list = classifier(class_weight=[{}, {1: 5.0}, {0: 0.5}]).fit(X, y)
    np.testing.assert_array_equal(by_name.predict_proba(X), as_list.predict_proba(X))
    with pytest.raises(ValueError, match="names the label 'd'; the labels are 'a', 'b', 'c'"):
        classifier(class_weight={"d": {1: 5.0}}).fit(X, y)


@pytest.mark.parametrize(
    "parameters, y, words",
    [
        ({"threshold": "f1"}, Y.argmax(axis=1) + Y.max(axis=1), "threshold is for two classes"),
        ({"threshold": {7: 0.4}}, Y, "names label 7, but labels are numbered from 0 to 2"),
        ({"threshold": {0: 1.4}}, Y, "must be a probability between 0 and 1"),
        ({"threshold": {"maybe": 0.4}}, Y[:, 0], "threshold of two classes"),
        ({"threshold": 1.5}, Y, "threshold"),
        ({"threshold": "f2"}, Y, "threshold"),
    ],
)
def test_invalid_thresholds_raise(parameters, y, words):
    with pytest.raises(ValueError, match=words):
        classifier(**parameters).fit(X, y)


def test_invalid_thresholds_in_a_file_raise():
    model = classifier(threshold=0.2).fit(X, Y)
    for wrong in ([0.2], [0.2, 0.2, 2.0], "all", [0.2, 0.2, None]):
        model.model_.metadata["thresholds"] = wrong
        with pytest.raises(ValueError, match="thresholds"):
            load_model(model.save_model())
