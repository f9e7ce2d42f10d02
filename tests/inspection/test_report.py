"""The HTML report: its content, that it is self-contained and deterministic."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from support.commands import fails, polyleaf

from polyleaf import (
    Dataset,
    PolyleafClassifier,
    PolyleafMultiTask,
    PolyleafRegressor,
    RowData,
    datasets,
    load_model,
)
from polyleaf.datasets import load
from polyleaf.distributions import NegativeBinomial, Normal
from polyleaf.inspection.plotting import OutputsDisplay
from polyleaf.inspection.report import make_report
from polyleaf.inspection.report.report_data import (
    COVERAGES,
    compute_coverage_table,
    compute_pit_histogram,
)
from polyleaf.inspection.report.sections import render_page, render_svg
from polyleaf.metrics._multitask import compute_scores_per_target

pytestmark = pytest.mark.full

VOID = {"meta", "link", "br", "img", "input", "hr"}


class Page(HTMLParser):
    """Elements, ids and addresses of a page, whose elements must be nested properly."""

    def __init__(self, html):
        super().__init__()
        self.open, self.tags, self.ids, self.addresses, self.text = [], [], [], [], []
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.tags.append(tag)
        self.ids += [attrs["id"]] if "id" in attrs else []
        self.addresses += [attrs[name] for name in ("src", "href", "xlink:href") if name in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_data(self, text):
        self.text.append(text)

    def sections(self):
        return [name for name in self.ids if name in NAMES]


NAMES = ("model", "data", "scores", "curves", "outputs", "truth", "features", "trees")


def two_numbers(**parameters):
    small = datasets.load("energy")
    X, X_test, y, y_test = small.split()
    X, X_test = (pd.DataFrame(rows, columns=small.feature_names) for rows in (X, X_test))
    y, y_test = (pd.DataFrame(rows, columns=small.output_names) for rows in (y, y_test))
    model = PolyleafRegressor(n_estimators=5, max_leaves=6, **parameters)
    return model.fit(X, y, X_val=X_test, y_val=y_test), X_test, y_test


def one_number():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 4))
    X[rng.random(X.shape) < 0.1] = np.nan
    y = np.nansum(X, axis=1)
    model = PolyleafRegressor(n_estimators=5, max_leaves=6, leaf="linear").fit(X[:150], y[:150])
    return model.calibrate(X[150:220], y[150:220], coverage=0.8), X[220:], y[220:]


def quantiles():
    return two_numbers(objective="quantile", quantile_alpha=[0.1, 0.9])


def distributions():
    return two_numbers(objective="normal")


def two_classes():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 3))
    y = np.where(X[:, 0] > 0, "yes", "no")
    return PolyleafClassifier(n_estimators=5, max_leaves=6).fit(X[:200], y[:200]), X[200:], y[200:]


def classes():
    X, X_test, y, y_test = datasets.load("letter").split()
    model = PolyleafClassifier(n_estimators=2, max_leaves=6).fit(X[:600], y[:600])
    return model, X_test[:100], y_test[:100]


def labels():
    small = datasets.load("emotions")
    X, X_test, y, y_test = small.split()
    y = pd.DataFrame(y, columns=small.output_names)
    return PolyleafClassifier(n_estimators=2, max_leaves=6).fit(X, y), X_test, y_test


SEVERAL_OUTPUTS = (two_numbers, quantiles, distributions, labels)


@pytest.mark.parametrize(
    "make", [*SEVERAL_OUTPUTS, one_number, two_classes, classes], ids=lambda make: make.__name__
)
def test_page_is_complete_and_self_contained(make):
    model, X, y = make()
    html = make_report(model, X, y).html
    assert html == make_report(model, X, y).html
    page = Page(html)
    without = () if make in SEVERAL_OUTPUTS else ("outputs",)
    assert page.sections() == [name for name in NAMES if name not in without]
    assert len(set(page.ids)) == len(page.ids)
    assert all(re.match(r"#|data:image/png;base64,", address) for address in page.addresses)
    assert {address[1:] for address in page.addresses if address[0] == "#"} <= set(page.ids)
    assert {found[1:] for found in re.findall(r"url\((#[^)]+)\)", html)} <= set(page.ids)
    assert "script" not in page.tags and "http://" not in re.sub(r'xmlns(:\w+)?="[^"]*"', "", html)
    assert page.tags.count("svg") >= 3
    assert len(html.encode()) < 1_000_000
    assert "#010203" not in html  # colours come from the page


def make_task_targets(y):
    return {
        "heating": y[:, 0],
        "costly": np.where(y[:, 1] > 30, "yes", "no").astype(object),
        "spread": y[:, 1],
        ("a", "b"): (y > 20).astype(float),
    }


def several_tasks(n_rows=200):
    X, X_test, y, y_test = datasets.load("energy").split()
    losses = {"heating": "squared_error", "costly": "logistic", "spread": "normal"}
    losses["a", "b"] = "logistic"
    model = PolyleafMultiTask(losses, n_estimators=5, max_leaves=6, missing_targets="ignore")
    model.fit(X, make_task_targets(y), X_val=X_test, y_val=make_task_targets(y_test))
    return model, X_test[:n_rows], make_task_targets(y_test[:n_rows])


def test_each_task_has_a_section():
    model, X, Y = several_tasks()
    html = make_report(model, X, Y).html
    page = Page(html)
    named = [name for name in page.ids if name in NAMES or re.fullmatch(r"task\d", name)]
    tasks = [f"task{t}" for t in range(4)]
    assert named == ["model", "data", "scores", "curves", *tasks, "features", "trees"]
    assert len(set(page.ids)) == len(page.ids)
    assert {found[1:] for found in re.findall(r"url\((#[^)]+)\)", html)} <= set(page.ids)
    assert {address[1:] for address in page.addresses if address[0] == "#"} <= set(page.ids)
    assert len(html.encode()) < 1_000_000
    assert html == make_report(model, X, Y).html
    text = set(page.text)
    assert {"heating", "costly", "spread", "a+b"} <= text
    assert {f"{score:.4g}" for score in model.d2_scores(X, Y).values()} <= text
    assert format_scores(Y["heating"], model.predict(X)["heating"]) <= text


def test_task_is_evaluated_on_rows_with_known_class():
    model, X, Y = several_tasks(100)
    Y["costly"][::4] = None
    Y["heating"][::5] = np.nan
    text = Page(make_report(model, X, Y).html).text
    assert "75" in text and "100" in text
    known = Y["costly"] != None  # noqa: E711
    predicted, chances = model.predict(X)["costly"][known], model.predict_proba(X)["costly"][known]
    options = {"probabilities": chances, "classes": np.array(["no", "yes"])}
    scores = format_scores(Y["costly"][known], predicted, "classification", **options)
    assert scores <= set(text)
    with pytest.raises(ValueError, match="Dataset"):
        make_report(model, Dataset(X, reference=model.model_.mapper), Y)
    with pytest.raises(ValueError, match="Y has no column 'costly'"):
        make_report(model, X, {"heating": Y["heating"]})


def test_distribution_scores_and_coverage():
    model, X, y = distributions()
    text = Page(make_report(model, X, y).html).text
    rows, law = RowData(y.to_numpy(np.float64)), model.predict_dist(X)
    predicted = model.predict(X)
    _, each = compute_scores_per_target("regression", list(y), rows, predicted, distribution=law)
    for found in each.values():
        assert {"NLL", "CRPS"} <= set(found)
        assert {f"{value:.4g}" for value in found.values()} <= set(text)
    assert {"50%", "80%", "90%", "95%", "mean width"} <= set(text)
    assert any("too narrow" in part for part in text)


def test_scores_equal_those_of_the_model():
    model, X, y = two_numbers()
    text = Page(make_report(model, X, y, title="Two loads").html).text
    assert "Two loads" in text
    rows = RowData(y.to_numpy(np.float64))
    of_all, each = compute_scores_per_target("regression", list(y), rows, model.predict(X))
    for found in (of_all, *each.values()):
        assert {f"{value:.4g}" for value in found.values()} <= set(text)
    assert {"heating_load", "cooling_load", "relative_compactness"} <= set(text)


def test_targets_with_several_scores_have_their_own_names():
    """For distributions and quantiles the report names targets, not scores."""
    for make in (distributions, quantiles):
        model, X, y = make()
        text = Page(make_report(model, X, y).html).text
        assert {"heating_load", "cooling_load"} <= set(text)
    drawn = OutputsDisplay.from_estimator(*distributions())
    assert list(drawn.output_names) == ["heating_load", "cooling_load"]


def test_names_from_data_are_escaped():
    numbers = np.random.default_rng(0).standard_normal((80, 2))
    X = pd.DataFrame(numbers, columns=["<script>", "a & b"])
    y = pd.DataFrame({"<b>": X["<script>"], "$x$": X["a & b"]})
    model = PolyleafRegressor(n_estimators=2, max_leaves=4).fit(X, y)
    page = Page(make_report(model, X, y, title="<i>").html)
    assert not {"script", "b", "i"} & set(page.tags)
    assert {"<script>", "<b>", "<i>"} <= set(page.text)


def test_missing_targets_are_ignored():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((120, 3))
    y = X[:, :2] + 1
    y[::3, 0] = np.nan
    model = PolyleafRegressor(n_estimators=2, max_leaves=4, missing_targets="ignore").fit(X, y)
    assert "33.3%" in Page(make_report(model, X, y).html).text


def test_model_without_statistics_has_no_shap_values(tmp_path):
    model, X, y = two_numbers()
    model.save_model(tmp_path / "m", statistics=False)
    text = " ".join(Page(make_report(load_model(tmp_path / "m"), X, y).html).text)
    assert "Importance by split" in text and "SHAP values were not computed" in text


def test_notebook_representation():
    model, X, y = two_classes()
    shown = make_report(model, X, y)._repr_html_()
    assert shown.startswith("<iframe ") and "&lt;!DOCTYPE html&gt;" in shown and "<svg" not in shown


def test_invalid_input_raises():
    model, X, y = two_numbers()
    with pytest.raises(ValueError, match="150"):
        make_report(model, X, y[:150])
    with pytest.raises(ValueError, match="dense"):
        make_report(model, X, scipy.sparse.csr_matrix(y.to_numpy()))
    with pytest.raises(ValueError, match="not fitted"):
        make_report(PolyleafRegressor(), X, y)


def format_scores(y, predicted, kind="regression", **options):
    scores, _ = compute_scores_per_target(kind, ["y"], RowData(y), predicted, **options)
    return {f"{value:.4g}" for value in scores.values()}


def make_counts(n):
    """Return features, counts and the logarithm of their exposure."""
    rng = np.random.default_rng(0)
    X, exposure = rng.normal(size=(n, 3)), rng.exponential(50, n) + 1
    counts = rng.poisson(exposure * np.exp(0.3 * X[:, 0])).astype(np.float64)
    return X, counts, np.log(exposure)


def test_offsets():
    X, counts, offset = make_counts(400)
    model = PolyleafRegressor(objective="poisson", n_estimators=20).fit(X, counts, offset=offset)
    right = format_scores(counts, model.predict(X, offset=offset))
    assert f"{model.score(X, counts, offset=offset):.4g}" in right
    assert right <= set(Page(make_report(model, X, counts, offset=offset).html).text)
    held = Dataset(X, counts, offset=offset, reference=model.model_.mapper)
    assert right <= set(Page(make_report(model, held, counts).html).text)
    with pytest.warns(UserWarning, match="offset") as warned:
        text = set(Page(make_report(model, X, counts).html).text)
    assert len(warned) == 1 and format_scores(counts, model.predict(X)) <= text


def test_offsets_of_tasks():
    X, counts, offset = make_counts(200)
    Y = {"counts": counts, "sign": np.where(X[:, 1] > 0, "a", "b").astype(object)}
    Y["sign"][::4] = None
    losses = {"counts": "poisson", "sign": "logistic"}
    model = PolyleafMultiTask(losses, n_estimators=4, max_leaves=6, missing_targets="ignore")
    model.fit(X, Y, offset={"counts": offset})
    text = set(Page(make_report(model, X, Y, offset={"counts": offset}).html).text)
    assert format_scores(counts, model.predict(X, offset={"counts": offset})["counts"]) <= text
    moved = {"counts": offset, "sign": np.full(200, 3.0)}
    score = f"{model.d2_scores(X, Y, offset=moved)['sign']:.4g}"
    assert score in Page(make_report(model, X, Y, offset=moved).html).text
    with pytest.warns(UserWarning, match="offset") as warned:
        make_report(model, X, Y)
    assert len(warned) == 1


def test_command_line(tmp_path, capsys):
    small = datasets.load("energy")
    rows = np.column_stack([small.X, small.y])
    table = pd.DataFrame(rows, columns=[*small.feature_names, *small.output_names])
    table.to_csv(tmp_path / "all.csv", index=False)
    polyleaf(f"train {tmp_path}/all.csv -t *_load -m {tmp_path}/m --rounds 3 -q")
    out = tmp_path / "page.html"
    polyleaf(f"report {tmp_path}/all.csv -m {tmp_path}/m -o {out}")
    page = Page(out.read_text("utf-8"))
    assert page.sections() == list(NAMES) and "Report: m" in page.text
    command = f"report {tmp_path}/all.csv -m {tmp_path}/m -o {tmp_path}/no/page.html"
    assert "its folder does not exist" in fails(capsys, command)


def test_svg_uses_page_colours():
    """matplotlib's colours have too little or too much contrast on a dark background."""

    def draw(ax):
        ax.plot([0, 1])
        ax.bar([0], [1], color="lightgray")

    svg = render_svg("p", "label", draw)
    assert (
        "var(--first)" in svg
        and "var(--second)" in svg
        and not {"#1f77b4", "#d3d3d3"} & set(svg.split())
    )
    style = render_page("t", "", [], "")
    assert style.count("--first:") == style.count("--second:") == style.count("--page:") == 3


def test_calibrated_distributions_have_a_flat_pit_histogram():
    rng = np.random.default_rng(0)
    predicted = Normal(rng.standard_normal(20_000), rng.uniform(0.5, 2.0, 20_000))
    y = predicted.rvs(random_state=1)
    error = (
        np.sqrt(0.1 * 0.9 / 20_000) / 0.1
    )  # relative error of the share of rows in one of ten bins
    np.testing.assert_allclose(compute_pit_histogram(y, predicted), 1.0, atol=3.5 * error)
    for coverage, found in zip(COVERAGES, compute_coverage_table(y, predicted), strict=True):
        assert found.coverage == coverage
        assert abs(found.share - coverage) < 4 * found.error
        bounds = predicted.interval(coverage)
        assert found.width == pytest.approx(np.mean(bounds[:, 1] - bounds[:, 0]))


def test_narrow_distributions_have_a_high_pit_histogram_at_the_ends():
    y = np.random.default_rng(0).standard_normal(5000)
    found = compute_pit_histogram(y, Normal(np.zeros(5000), np.full(5000, 0.4)))
    assert found[0] > 2 < found[-1] and found[4] < 1
    assert found.sum() == pytest.approx(10)


def test_pit_histogram_of_counts_is_not_randomised():
    predicted = NegativeBinomial(np.array([0.7, 3.0, 40.0]), np.array([0.5, 1.0, 0.1]))
    y, n_bins = np.array([0.0, 2.0, 55.0]), 4
    expected = np.zeros(n_bins)
    for i in range(3):
        one = predicted[i : i + 1]
        first, last = float(one.cdf(y[i] - 1)[0]), float(one.cdf(y[i])[0])
        for b in range(n_bins):
            shared = min(last, (b + 1) / n_bins) - max(first, b / n_bins)
            expected[b] += max(0.0, shared) / (last - first) / 3 * n_bins
    np.testing.assert_allclose(compute_pit_histogram(y, predicted, n_bins), expected, rtol=1e-12)


def test_pit_of_extreme_values_is_in_the_first_and_last_bin():
    predicted = Normal(np.zeros(2), np.ones(2))
    np.testing.assert_array_equal(
        compute_pit_histogram(np.array([1e6, -1e6]), predicted, 5), [2.5, 0, 0, 0, 2.5]
    )


def test_confusion_matrix_of_classes():
    X, X_test, y, y_test = load("letter").split()
    model = PolyleafClassifier(n_estimators=3, max_leaves=8).fit(X[:900], y[:900])
    page = make_report(model, X_test[:300], y_test[:300]).html
    assert "Confusion matrix: the share of the rows" in page
    few = np.isin(y, ["A"])[:900]
    one = PolyleafClassifier(n_estimators=3).fit(X[:900], few)
    page = make_report(one, X[:40], np.zeros(40, bool)).html  # rows of one class
    assert "Confusion matrix" not in page
