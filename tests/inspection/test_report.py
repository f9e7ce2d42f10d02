"""The page about a model: what stands on it, that it needs nothing else, and is the same each time."""

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
    datasets,
    load_model,
)
from polyleaf.inspection.plotting import OutputsDisplay
from polyleaf.inspection.report import report
from polyleaf.metrics._multitask import compute_scores_per_target

VOID = {"meta", "link", "br", "img", "input", "hr"}


class Page(HTMLParser):
    """Elements, closed in order; ids; what is asked for elsewhere."""

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
    return (
        PolyleafClassifier(n_estimators=2, max_leaves=6).fit(X[:600], y[:600]),
        X_test[:100],
        y_test[:100],
    )


def labels():
    small = datasets.load("emotions")
    X, X_test, y, y_test = small.split()
    y = pd.DataFrame(y, columns=small.output_names)
    return PolyleafClassifier(n_estimators=2, max_leaves=6).fit(X, y), X_test, y_test


CASES = {
    two_numbers: NAMES,
    one_number: [name for name in NAMES if name != "outputs"],
    quantiles: NAMES,
    distributions: NAMES,
    two_classes: [name for name in NAMES if name != "outputs"],
    classes: [name for name in NAMES if name != "outputs"],
    labels: NAMES,
}


@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
def test_a_page_is_whole_and_needs_nothing_else(make):
    model, X, y = make()
    html = model.report(X, y).html
    page = Page(html)
    assert page.sections() == list(CASES[make])
    assert len(set(page.ids)) == len(page.ids)
    assert all(re.match(r"#|data:image/png;base64,", address) for address in page.addresses)
    assert {address[1:] for address in page.addresses if address[0] == "#"} <= set(page.ids)
    assert {found[1:] for found in re.findall(r"url\((#[^)]+)\)", html)} <= set(page.ids)
    assert "script" not in page.tags and "http://" not in re.sub(r'xmlns(:\w+)?="[^"]*"', "", html)
    assert page.tags.count("svg") >= 3
    assert len(html.encode()) < 1_000_000
    assert "#010203" not in html  # colours are the page's


def of_tasks(y):
    return {
        "heating": y[:, 0],
        "costly": np.where(y[:, 1] > 30, "yes", "no").astype(object),
        "spread": y[:, 1],
        ("a", "b"): (y > 20).astype(float),
    }


def several_tasks(n_rows=200):
    X, X_test, y, y_test = datasets.load("energy").split()
    losses = {
        "heating": "squared_error",
        "costly": "logistic",
        "spread": "normal",
        ("a", "b"): "logistic",
    }
    model = PolyleafMultiTask(losses, n_estimators=5, max_leaves=6, missing_targets="ignore")
    model.fit(X, of_tasks(y), X_val=X_test, y_val=of_tasks(y_test))
    return model, X_test[:n_rows], of_tasks(y_test[:n_rows])


def test_tasks_have_one_page_and_a_section_each():
    model, X, Y = several_tasks()
    html = model.report(X, Y).html
    page = Page(html)
    named = [name for name in page.ids if name in NAMES or re.fullmatch(r"task\d", name)]
    assert named == [
        "model",
        "data",
        "scores",
        "curves",
        *(f"task{t}" for t in range(4)),
        "features",
        "trees",
    ]
    assert len(set(page.ids)) == len(page.ids)
    assert {found[1:] for found in re.findall(r"url\((#[^)]+)\)", html)} <= set(page.ids)
    assert {address[1:] for address in page.addresses if address[0] == "#"} <= set(page.ids)
    assert len(html.encode()) < 1_000_000
    assert html == model.report(X, Y).html
    text = set(page.text)
    assert {"heating", "costly", "spread", "a+b"} <= text
    assert {f"{skill:.4g}" for skill in model.skills(X, Y).values()} <= text
    own, _ = compute_scores_per_target(
        "regression", ["y"], Y["heating"], model.predict(X)["heating"]
    )
    assert {f"{value:.4g}" for value in own.values()} <= text


def test_a_task_is_measured_on_rows_whose_class_is_known():
    model, X, Y = several_tasks(100)
    Y["costly"][::4] = None
    Y["heating"][::5] = np.nan
    text = Page(model.report(X, Y).html).text
    assert "75" in text and "100" in text
    known = Y["costly"] != None  # noqa: E711
    predicted, chances = model.predict(X)["costly"][known], model.predict_proba(X)["costly"][known]
    found, _ = compute_scores_per_target(
        "classification",
        ["y"],
        Y["costly"][known],
        predicted,
        probabilities=chances,
        classes=np.array(["no", "yes"]),
    )
    assert {f"{value:.4g}" for value in found.values()} <= set(text)
    with pytest.raises(ValueError, match="pass X as an array or table, not as a Dataset"):
        model.report(Dataset(X, reference=model.model_.mapper), Y)
    with pytest.raises(ValueError, match="Y has no column 'costly'"):
        model.report(X, {"heating": Y["heating"]})


def test_distributions_tell_how_they_hold():
    model, X, y = distributions()
    text = Page(model.report(X, y).html).text
    _, each = compute_scores_per_target(
        "regression",
        list(y),
        y.to_numpy(np.float64),
        model.predict(X),
        distribution=model.predict_dist(X),
    )
    for found in each.values():
        assert {"NLL", "CRPS"} <= set(found)
        assert {f"{value:.4g}" for value in found.values()} <= set(text)
    assert {"50%", "80%", "90%", "95%", "mean width"} <= set(text)
    assert any("too narrow" in part for part in text)


def test_the_same_model_and_rows_are_the_same_bytes():
    model, X, y = two_numbers()
    assert report(model, X, y).html == report(model, X, y).html


def test_figures_are_those_of_the_model():
    model, X, y = two_numbers()
    text = Page(model.report(X, y, title="Two loads").html).text
    assert "Two loads" in text
    of_all, each = compute_scores_per_target(
        "regression", list(y), y.to_numpy(np.float64), model.predict(X)
    )
    for found in (of_all, *each.values()):
        assert {f"{value:.4g}" for value in found.values()} <= set(text)
    assert {"heating_load", "cooling_load", "relative_compactness"} <= set(text)


def test_targets_whose_scores_are_several_have_their_own_names():
    """Of a distribution's parameters, or quantiles, it is the targets that are told about."""
    for make in (distributions, quantiles):
        model, X, y = make()
        text = Page(model.report(X, y).html).text
        assert {"heating_load", "cooling_load"} <= set(text)
    drawn = OutputsDisplay.from_estimator(*distributions())
    assert list(drawn.output_names) == ["heating_load", "cooling_load"]


def test_names_from_data_are_escaped():
    X = pd.DataFrame(
        np.random.default_rng(0).standard_normal((80, 2)), columns=["<script>", "a & b"]
    )
    y = pd.DataFrame({"<b>": X["<script>"], "$x$": X["a & b"]})
    model = PolyleafRegressor(n_estimators=2, max_leaves=4).fit(X, y)
    page = Page(model.report(X, y, title="<i>").html)
    assert not {"script", "b", "i"} & set(page.tags)
    assert {"<script>", "<b>", "<i>"} <= set(page.text)


def test_targets_that_are_not_known_do_not_count():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((120, 3))
    y = X[:, :2] + 1
    y[::3, 0] = np.nan
    model = PolyleafRegressor(n_estimators=2, max_leaves=4, missing_targets="ignore").fit(X, y)
    assert "33.3%" in Page(model.report(X, y).html).text


def test_a_model_without_statistics_has_no_contributions(tmp_path):
    model, X, y = two_numbers()
    model.save_model(tmp_path / "m", statistics=False)
    text = " ".join(Page(load_model(tmp_path / "m").report(X, y).html).text)
    assert "By the split of the splits" in text and "Contributions were not worked out" in text


def test_a_notebook_shows_it_in_a_frame():
    model, X, y = two_classes()
    shown = report(model, X, y)._repr_html_()
    assert shown.startswith("<iframe ") and "&lt;!DOCTYPE html&gt;" in shown and "<svg" not in shown


def test_what_cannot_be_reported_is_refused():
    model, X, y = two_numbers()
    with pytest.raises(ValueError, match=r"X has 153 rows, y has 150\."):
        model.report(X, y[:150])
    with pytest.raises(ValueError, match="pass y as a dense array"):
        model.report(X, scipy.sparse.csr_matrix(y.to_numpy()))
    with pytest.raises(ValueError, match="not fitted"):
        PolyleafRegressor().report(X, y)


def numbers_of(y, predicted):
    return {
        f"{value:.4g}"
        for value in compute_scores_per_target("regression", ["y"], y, predicted)[0].values()
    }


def test_rows_begin_at_their_offsets():
    rng = np.random.default_rng(0)
    X, exposure = rng.normal(size=(400, 3)), rng.exponential(50, 400) + 1
    counts, offset = (
        rng.poisson(exposure * np.exp(0.3 * X[:, 0])).astype(np.float64),
        np.log(exposure),
    )
    model = PolyleafRegressor(objective="poisson", n_estimators=20).fit(X, counts, offset=offset)
    right = numbers_of(counts, model.predict(X, offset=offset))
    assert f"{model.score(X, counts, offset=offset):.4g}" in right
    assert right <= set(Page(model.report(X, counts, offset=offset).html).text)
    held = Dataset(X, counts, offset=offset, reference=model.model_.mapper)
    assert right <= set(Page(model.report(held, counts).html).text)
    with pytest.warns(UserWarning, match="these rows have none") as told:
        text = set(Page(model.report(X, counts).html).text)
    assert len(told) == 1 and numbers_of(counts, model.predict(X)) <= text


def test_each_task_begins_at_its_offset():
    rng = np.random.default_rng(0)
    X, exposure = rng.normal(size=(200, 3)), rng.exponential(50, 200) + 1
    counts, offset = (
        rng.poisson(exposure * np.exp(0.3 * X[:, 0])).astype(np.float64),
        np.log(exposure),
    )
    Y = {"counts": counts, "sign": np.where(X[:, 1] > 0, "a", "b").astype(object)}
    Y["sign"][::4] = None
    losses = {"counts": "poisson", "sign": "logistic"}
    model = PolyleafMultiTask(losses, n_estimators=4, max_leaves=6, missing_targets="ignore")
    model.fit(X, Y, offset={"counts": offset})
    text = set(Page(model.report(X, Y, offset={"counts": offset}).html).text)
    assert numbers_of(counts, model.predict(X, offset={"counts": offset})["counts"]) <= text
    moved = {"counts": offset, "sign": np.full(200, 3.0)}
    assert (
        f"{model.skills(X, Y, offset=moved)['sign']:.4g}"
        in Page(model.report(X, Y, offset=moved).html).text
    )
    with pytest.warns(UserWarning, match="these rows have none") as told:
        model.report(X, Y)
    assert len(told) == 1


def test_the_command_writes_it(tmp_path, capsys):
    small = datasets.load("energy")
    rows = np.column_stack([small.X, small.y])
    table = pd.DataFrame(rows, columns=[*small.feature_names, *small.output_names])
    table.to_csv(tmp_path / "all.csv", index=False)
    polyleaf(
        "train", tmp_path / "all.csv", "-t", "*_load", "-m", tmp_path / "m", "--rounds", "3", "-q"
    )
    out = tmp_path / "page.html"
    polyleaf("report", tmp_path / "all.csv", "-m", tmp_path / "m", "-o", out)
    page = Page(out.read_text("utf-8"))
    assert page.sections() == list(NAMES) and "Report: m" in page.text
    assert "its folder does not exist" in fails(
        capsys,
        "report",
        tmp_path / "all.csv",
        "-m",
        tmp_path / "m",
        "-o",
        tmp_path / "no" / "page.html",
    )


def test_curves_and_bars_have_the_colours_of_the_page():
    """matplotlib's own would be too faint, or glare, on dark ground."""
    from polyleaf.inspection.report.page import page
    from polyleaf.inspection.report.pictures import picture

    def draw(ax):
        ax.plot([0, 1])
        ax.bar([0], [1], color="lightgray")

    svg = picture("p", "label", draw)
    assert (
        "var(--first)" in svg
        and "var(--beside)" in svg
        and not {"#1f77b4", "#d3d3d3"} & set(svg.split())
    )
    style = page("t", "", [], "")
    assert style.count("--first:") == style.count("--beside:") == style.count("--page:") == 3
