"""Pictures of the documentation: `python scripts/pictures.py [NAME ...]` writes docs/images.

Each picture is written twice, NAME-light.svg and NAME-dark.svg. Times and ranks come from the
results of experiments; everything else is trained here. The picture of the report needs Playwright
and Chromium.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from polyleaf import PolyleafClassifier, PolyleafRegressor
from polyleaf.datasets import load
from polyleaf.inspection import make_report

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "images"
PEERS = ROOT / "experiments" / "results" / "peers.json"
RESULTS = ROOT / "docs" / "benchmarks" / "results.md"
QUALITY = ROOT / "experiments" / "results" / "quality.jsonl"
ONE_THREAD = {"n_jobs": 1, "random_state": 0}


class Theme(NamedTuple):
    """Colours of a theme: text, faint lines, fill of boxes, and lines in order."""

    name: str
    ink: str
    faint: str
    box: str
    colors: tuple[str, ...]


THEMES = (
    Theme(
        "light", "#1b1f24", "#8a929c", "#eef2f6",
        ("#0072b2", "#d55e00", "#009e73", "#a6519a", "#b8860b", "#56616d"),
    ),
    Theme(
        "dark", "#e6e8ea", "#7d8590", "#22272e",
        ("#56b4e9", "#ff9e4a", "#3ddc97", "#e08bd3", "#f0c54b", "#a9b2bc"),
    ),
)  # fmt: skip

PICTURES: dict[str, tuple[Callable[[Any, Theme], None], tuple[float, float]]] = {}


def picture(width: float, height: float) -> Callable[[Any], Any]:
    """Register a function that draws on a figure of this size in inches."""

    def add(draw: Callable[[Any, Theme], None]) -> Callable[[Any, Theme], None]:
        PICTURES[draw.__name__.removeprefix("draw_").replace("_", "-")] = draw, (width, height)
        return draw

    return add


# --- trees ----------------------------------------------------------------------------------------


def make_menu(n: int = 3000) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Return weather and hour, and the sales of five products that depend on them."""
    rng = np.random.default_rng(0)
    temperature, hour = rng.uniform(0, 35, n), rng.uniform(7, 22, n)
    hot, noon = temperature > 22, (hour > 11) & (hour < 15)
    sales = np.column_stack(
        [
            3 + 20 * hot + 4 * ~noon * hot,
            16 - 9 * (hour > 15),
            4 + 12 * noon * ~hot,
            3 + 13 * noon * hot,
            10 - 5 * hot + 2 * (hour > 15),
        ]
    )
    X = np.column_stack([temperature, hour]).astype(np.float32)
    return X, sales + rng.normal(size=sales.shape), ["ice", "coffee", "soup", "salad", "tea"]


@picture(8.4, 3.5)
def draw_vector_leaf(figure: Any, theme: Theme) -> None:
    """Draw a tree whose leaves have a bar for each output."""
    X, Y, names = make_menu()
    model = PolyleafRegressor(
        n_estimators=1, learning_rate=1.0, max_leaves=4, colsample_bynode=1.0,
        normalize_targets=False, base_score=0.0, **ONE_THREAD,
    ).fit(X, Y)  # fmt: skip
    tree = model.model_.trees[0]
    record, mapper = tree.structure, model.model_.mapper
    features = ("temperature", "hour")
    figure.set_layout_engine("none")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, 1), ylim=(0, 1))
    axes.axis("off")
    depth = {0: 0}
    order: list[int] = []
    stack = [0]
    while stack:
        node = stack.pop()
        if record.feature[node] < 0:
            order.append(node)
            continue
        left, right = int(record.left[node]), int(record.right[node])
        depth[left] = depth[right] = depth[node] + 1
        stack += [right, left]
    x = {node: (i + 0.5) / len(order) for i, node in enumerate(order)}
    y = {d: 0.9 - 0.2 * d for d in range(4)}
    bottom = 0.32
    for node in sorted(depth, reverse=True):
        if node not in x:
            x[node] = (x[int(record.left[node])] + x[int(record.right[node])]) / 2
    for node in depth:
        if record.feature[node] < 0:
            continue
        for child, word in ((int(record.left[node]), "yes"), (int(record.right[node]), "no")):
            end = y[depth[child]] if record.feature[child] >= 0 else bottom + 0.02
            axes.plot([x[node], x[child]], [y[depth[node]], end], color=theme.faint, lw=1, zorder=1)
            middle = ((x[node] + x[child]) / 2, (y[depth[node]] + end) / 2)
            axes.text(*middle, word, ha="center", va="center", fontsize=8, color=theme.faint,
                      bbox={"fc": theme.box, "ec": "none", "pad": 1})  # fmt: skip
        feature = int(record.feature[node])
        value = mapper.threshold_value(feature, int(record.threshold[node]))
        axes.text(x[node], y[depth[node]], f"{features[feature]} ≤ {value:.0f}?", ha="center",
                  va="center", fontsize=10, color=theme.ink,
                  bbox={"fc": theme.box, "ec": theme.faint, "boxstyle": "round,pad=0.4"}
                  )  # fmt: skip
    top = max(tree.leaf_values(int(record.leaf[node])).max() for node in order)
    for node in order:
        width = 0.9 / len(order)
        panel = figure.add_axes((x[node] - width / 2, 0.12, width, bottom - 0.14))
        panel.bar(names, tree.leaf_values(int(record.leaf[node])), color=theme.colors[:5])
        panel.set_ylim(0, top)
        panel.tick_params(length=0, labelsize=7.5)
        panel.set_yticks([])
        panel.grid(False)
        panel.spines[["top", "left", "right"]].set_visible(False)
    axes.text(0.5, 0.02, "one tree, five outputs: every leaf holds a vector", ha="center",
              fontsize=9, color=theme.faint)  # fmt: skip


@picture(8.4, 2.9)
def draw_layers(figure: Any, theme: Theme) -> None:
    """Compare boosting by layers and by rounds at equal numbers of trees."""
    X, X_test, y, y_test = load("letter").split()
    panels = figure.subplots(1, 2)
    rounds = np.arange(1, 61)
    for color, step in zip(theme.colors, ("round", "layer"), strict=False):
        model = PolyleafClassifier(
            boosting_step=step, grow_policy="depthwise", max_depth=4, max_leaves=None,
            learning_rate=0.3, n_estimators=60, eval_metric=["merror", "mlogloss"], **ONE_THREAD,
        ).fit(X, y, eval_set=[(X_test, y_test)])  # fmt: skip
        log = model.evals_result_["validation_0"]
        label = f'boosting_step="{step}"'
        panels[0].plot(rounds, 1 - np.array(log["merror"]), color=color, label=label)
        panels[1].plot(rounds, log["mlogloss"], color=color, label=label)
    panels[0].set(xlabel="trees of depth 4", ylabel="test accuracy", title="letter, 26 classes")
    panels[1].set(xlabel="trees of depth 4", ylabel="test log loss", yscale="log")
    panels[0].legend(loc="lower right")


@picture(8.4, 3.0)
def draw_output_groups(figure: Any, theme: Theme) -> None:
    """Show which labels gain from the same splits, and each label's share of gain by tree."""
    emotions = load("emotions")
    X, _, y, _ = emotions.split()
    model = PolyleafClassifier(n_estimators=100, max_leaves=8, **ONE_THREAD).fit(X, y)
    trees = [np.maximum(tree.structure.output_gain, 0) for tree in model.model_.trees]
    gains = np.concatenate(trees)
    similarity = np.corrcoef(gains[gains.any(axis=1)].T)
    order = [0, 2, 5, 3, 4, 1]
    names = [emotions.output_names[k].partition("-")[0] for k in order]
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.5))
    image = left.imshow(similarity[np.ix_(order, order)], cmap="Blues", vmin=0, vmax=1)
    left.set_xticks(range(6), names, rotation=40, ha="right")
    left.set_yticks(range(6), names)
    left.set_title("correlation of split gains")
    figure.colorbar(image, ax=left, fraction=0.046)
    shares = np.array([tree.sum(axis=0) for tree in trees])[:40, order]
    shares /= shares.sum(axis=1, keepdims=True)
    right.stackplot(np.arange(40), shares.T, colors=theme.colors, labels=names)
    right.set(title="share of each label in the gain of a tree", xlabel="tree", xlim=(0, 39),
              ylim=(0, 1))  # fmt: skip
    right.legend(loc="center left", bbox_to_anchor=(1, 0.5), reverse=True)
    for panel in (left, right):
        panel.grid(False)


def make_curve() -> tuple[np.ndarray, np.ndarray]:
    """Return one feature and a smooth curve with noise."""
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 2, 400).astype(np.float32)
    return x[:, None], (np.sin(5 * x) + x + 0.15 * rng.standard_normal(400)).astype(np.float32)


def predict_curve(grid: np.ndarray, **parameters: Any) -> np.ndarray:
    """Train on the curve and return predictions on a grid."""
    model = PolyleafRegressor(min_child_samples=20, **ONE_THREAD, **parameters)
    return model.fit(*make_curve()).predict(grid[:, None])


@picture(8.4, 2.9)
def draw_linear_leaves(figure: Any, theme: Theme) -> None:
    """Compare constant and linear leaves on a smooth curve."""
    grid = np.linspace(0, 2, 300).astype(np.float32)
    X, y = make_curve()
    sizes = {"1 tree, 6 leaves": (1, 1.0), "20 trees, 6 leaves, rate 0.3": (20, 0.3)}
    panels = figure.subplots(1, 2, sharey=True)
    for panel, (title, (n, rate)) in zip(panels, sizes.items(), strict=True):
        panel.plot(X[::4], y[::4], ".", color=theme.faint, ms=3, alpha=0.7)
        for color, leaf in zip(theme.colors, ("constant", "linear"), strict=False):
            values = predict_curve(
                grid, n_estimators=n, learning_rate=rate, max_leaves=6, leaf=leaf
            )
            panel.plot(grid, values, color=color, label=f"{leaf} leaves")
        panel.set_title(title)
    panels[0].legend()


@picture(8.4, 2.9)
def draw_linear_extrapolation(figure: Any, theme: Theme) -> None:
    """Show predictions of linear leaves beyond the training rows."""
    grid = np.linspace(-1, 3, 300).astype(np.float32)
    X, y = make_curve()
    panels = figure.subplots(1, 2, sharey=True)
    for panel, how in zip(panels, ("clip", "none"), strict=True):
        values = predict_curve(grid, n_estimators=50, leaf="linear", linear_extrapolation=how)
        panel.plot(X[::4], y[::4], ".", color=theme.faint, ms=3, alpha=0.7)
        panel.plot(grid, values, color=theme.colors[1])
        panel.axvspan(0, 2, color=theme.faint, alpha=0.12)
        panel.set(title=f'linear_extrapolation="{how}"', ylim=(-6, 8))


# --- calibration ----------------------------------------------------------------------------------


@picture(8.4, 3.2)
def draw_calibration(figure: Any, theme: Theme) -> None:
    """Show how often quantiles and predicted probabilities hold on test rows."""
    left, right = figure.subplots(1, 2)
    levels = np.linspace(0.05, 0.95, 19)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 10)).astype(np.float32)
    y = X[:, 0] + (0.5 + np.abs(X[:, 1])) * rng.normal(size=3000)
    for color, calibrate in zip(theme.colors, (True, False), strict=False):
        model = PolyleafRegressor(
            "quantile", quantile_alpha=levels, calibrate_quantiles=calibrate, n_estimators=150,
            **ONE_THREAD,
        ).fit(X[:1000], y[:1000])  # fmt: skip
        shares = (y[1000:, None] <= model.predict(X[1000:])).mean(axis=0)
        label = "calibrated (default)" if calibrate else "calibrate_quantiles=False"
        left.plot(levels, shares, "o-", color=color, ms=3, label=label)
    left.set(xlabel="quantile level", ylabel="share of test rows below", title="quantiles")
    X, X_test, y, y_test = load("letter").split()
    model = PolyleafClassifier(n_estimators=60, **ONE_THREAD).fit(X[:4000], y[:4000])
    probability = model.predict_proba(X_test).ravel()
    truth = (y_test[:, None] == model.classes_).ravel()
    bins = np.clip((probability * 10).astype(int), 0, 9)
    mean = [probability[bins == b].mean() for b in range(10)]
    share = [truth[bins == b].mean() for b in range(10)]
    right.plot(mean, share, "o-", color=theme.colors[2], ms=3, label="letter, 26 classes")
    right.set(xlabel="predicted probability", ylabel="observed share", title="probabilities")
    for panel in (left, right):
        panel.plot([0, 1], [0, 1], ":", color=theme.faint)
        panel.set_aspect("equal")
        panel.legend(fontsize=8)


# --- benchmarks -----------------------------------------------------------------------------------

CONTENDERS = {
    "polyleaf": "Polyleaf",
    "xgboost-multi-output-tree": "XGBoost, vector leaves",
    "xgboost-one-output-per-tree": "XGBoost",
    "lightgbm": "LightGBM",
    "catboost": "CatBoost",
}


def read_cases() -> dict[str, Any]:
    """Return the cases of the comparison with other libraries by name."""
    return {case["name"]: case for case in json.loads(PEERS.read_text("utf-8"))["cases"]}


@picture(8.4, 3.1)
def draw_accuracy_and_time(figure: Any, theme: Theme) -> None:
    """Draw the test loss against seconds of training for each library."""
    cases = read_cases()
    titles = {"letter": "letter, 26 classes", "otto": "otto, 9 classes", "rf1": "rf1, 8 targets"}
    panels = figure.subplots(1, 3)
    for panel, (name, title) in zip(panels, titles.items(), strict=True):
        case = cases[f"quality-{name}"]
        contenders = {contender["label"]: contender for contender in case["contenders"]}
        final = contenders["polyleaf"]["runs"][0]["score"]
        for color, (label, text) in zip(theme.colors, CONTENDERS.items(), strict=False):
            run = contenders[label]["runs"][0]
            curve = run["curve"] or [[run["rounds"], run["fit_seconds"], run["score"]]]
            _, seconds, score = np.transpose(curve)
            is_ours = label == "polyleaf"
            panel.plot(
                seconds, score, color=color, lw=2.4 if is_ours else 1.3, label=text,
                zorder=3 if is_ours else 2,
            )  # fmt: skip
            panel.plot(seconds[-1], score[-1], "o", color=color, ms=4)
        panel.set(xscale="log", xlabel="seconds", title=title, ylim=(0.9 * final, 3.2 * final))
        panel.set_ylabel(f"test {contenders['polyleaf'].get('score_name', 'loss')}")
        panel.set_xlim(0.05)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), fontsize=8.5)


@picture(8.4, 2.9)
def draw_fit_time(figure: Any, theme: Theme) -> None:
    """Draw the seconds of a fit of each library on four shapes of data."""
    cases = read_cases()
    titles = {
        "mo16": "40,000 x 50\n16 targets",
        "few": "1,000 x 50\n50 targets",
        "one": "1,000,000 x 28\n2 classes",
        "words-10": "20,000 x 30,000\nsparse, 10 targets",
    }
    panel = figure.subplots()
    step = 1 / (len(CONTENDERS) + 1.5)
    for i, name in enumerate(titles):
        contenders = {contender["label"]: contender for contender in cases[name]["contenders"]}
        for j, label in enumerate(CONTENDERS):
            found = contenders.get(label) or (
                contenders.get("xgboost") if label.startswith("xgboost-one") else None
            )
            if found is None or not found["runs"]:
                continue
            seconds = float(np.median([run["fit_seconds"] for run in found["runs"]]))
            position = i + (j - 2) * step
            panel.bar(position, seconds, 0.9 * step, color=theme.colors[j],
                      label=CONTENDERS[label] if i == 0 else None)  # fmt: skip
            panel.text(position, seconds * 1.12, f"{seconds:.2g}", ha="center", fontsize=7.5,
                       color=theme.ink)  # fmt: skip
    panel.set(yscale="log", ylabel="seconds of a fit", ylim=(0.02, 260))
    panel.set_xticks(range(len(titles)), titles.values())
    panel.tick_params(axis="x", length=0)
    panel.grid(False, axis="x")
    handles, labels = panel.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), fontsize=8.5)


RANKED = {
    "Polyleaf": 0, "XGBoost": 2, "LightGBM": 3, "CatBoost": 4, "Polyleaf, default settings": 5,
}  # fmt: skip


def read_mean_ranks(heading: str) -> tuple[int, dict[str, float]]:
    """Return the number of data sets and the mean rank of each library from the page of results."""
    _, _, section = RESULTS.read_text("utf-8").partition(f"\n### {heading}")
    found = re.search(r"Mean ranks over (\d+): (.*?) \(critical", section, re.DOTALL)
    assert found, heading
    text = " ".join(found[2].split()).replace("Polyleaf as it comes", "Polyleaf, default settings")
    pairs = re.findall(r"((?:Polyleaf, default settings|\w+)) ([\d.]+)", text)
    return int(found[1]), {name: float(rank) for name, rank in pairs}


@picture(8.4, 2.7)
def draw_mean_ranks(figure: Any, theme: Theme) -> None:
    """Draw the mean rank by test loss with default settings, and after tuning."""
    panels = figure.subplots(1, 2)
    defaults = {"regression": "regression", "multi-class": "classes", "multi-label": "labels"}
    rows = (
        {f"Test loss, {kind}": word for kind, word in defaults.items()},
        {f"{limit} s, loss, sets apart": f"{limit} s" for limit in (15, 60, 300)},
    )
    titles = ("default settings", "tuned for so many seconds")
    handles: dict[str, Any] = {}
    for panel, headings, title in zip(panels, rows, titles, strict=True):
        names = []
        for y, (heading, word) in enumerate(headings.items()):
            n, ranks = read_mean_ranks(heading)
            names.append(f"{word}, {n} sets")
            panel.axhline(y, color=theme.faint, lw=0.6, alpha=0.5)
            for name, rank in ranks.items():
                is_default = name not in CONTENDERS.values()
                handles[name] = panel.plot(
                    rank, y, "D" if is_default else "o", color=theme.colors[RANKED[name]],
                    ms=6 if is_default else 8, label=name, ls="none", zorder=3,
                )[0]  # fmt: skip
        panel.set(title=title, xlabel="mean rank by test loss (1 is best)", ylim=(2.5, -0.5))
        panel.set_yticks(range(3), names)
        panel.grid(False, axis="y")
    figure.legend(handles.values(), handles, loc="outside lower center", ncols=5, fontsize=8.5)


RUNGS = "fast", "standard", "high"


def read_quality() -> dict[str, tuple[float, float]]:
    """Return the time of a fit and the test loss of each method, relative to `quality="fast"`.

    Both are medians over the data sets with at most 10,000 rows: some losses are near 0, whose
    ratios would decide means.
    """
    ratios: dict[str, list[np.ndarray]] = {}
    figures = {}
    for line in QUALITY.read_text("utf-8").splitlines():
        record = json.loads(line)
        if record.get("key", "").startswith("quality/small/"):
            method, name = record["key"].split("/")[2:]
            splits = [record["figures"][figure] for figure in ("seconds", "loss")]
            figures[method, name] = np.log([np.mean(values) for values in splits])
    for (method, name), values in figures.items():
        ratios.setdefault(method, []).append(values - figures["fast", name])
    return {
        method: tuple(np.exp(np.median(values, axis=0)).tolist())
        for method, values in ratios.items()
        if len(values) == len(ratios["fast"])
    }


@picture(6.4, 3.2)
def draw_quality(figure: Any, theme: Theme) -> None:
    """Draw the test loss against the time of a fit, for each quality and other libraries."""
    panel = figure.subplots()
    points = read_quality()
    panel.plot(*zip(*(points[name] for name in RUNGS), strict=True), color=theme.colors[0])
    for name, (seconds, loss) in points.items():
        is_ours = name in RUNGS
        color = theme.colors[0 if is_ours else RANKED[name]]
        panel.plot(seconds, loss, "o", color=color, ms=7)
        text = f'"{name}"' if is_ours else name
        place = {"xytext": (0, -15 if is_ours else 7), "textcoords": "offset points"}
        panel.annotate(text, (seconds, loss), ha="center", **place)
    panel.set(xscale="log", xlabel='time of a fit, in multiples of "fast"')
    panel.set_xticks([0.25, 0.5, 1, 2, 4, 8], ["0.25", "0.5", "1", "2", "4", "8"])
    panel.minorticks_off()
    panel.set_ylabel('test loss / loss of "fast"')
    panel.margins(0.12, 0.2)


# --- architecture ---------------------------------------------------------------------------------


@picture(8.4, 4.6)
def draw_architecture(figure: Any, theme: Theme) -> None:
    """Draw the way from a fit to a model, and the layers of the package."""
    figure.set_layout_engine("none")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, 100), ylim=(0, 56))
    axes.axis("off")

    def box(x: float, y: float, width: float, text: str, color: str, height: float = 5.5) -> None:
        from matplotlib.patches import FancyBboxPatch

        axes.add_patch(
            FancyBboxPatch((x, y), width, height, "round,pad=0.2,rounding_size=0.8", fc=theme.box,
                           ec=color, lw=1.3)
        )  # fmt: skip
        axes.text(x + width / 2, y + height / 2, text, ha="center", va="center", fontsize=8.5,
                  color=theme.ink)  # fmt: skip

    def arrow(start: tuple[float, float], end: tuple[float, float]) -> None:
        axes.annotate("", end, start, arrowprops={"arrowstyle": "->", "color": theme.faint})

    python, core = theme.colors[0], theme.colors[1]
    box(2, 49, 29, "estimators: fit(X, y)", python)
    box(36, 49, 28, "settings: TrainConfig", python)
    box(2, 39, 29, "inputs: FeatureTable, Target", python)
    box(36, 39, 28, "data: BinMapper, Dataset", python)
    box(69, 39, 29, "bins: 8 codes in a word", core)
    arrow((31.5, 51.7), (35.3, 51.7))
    arrow((16, 48.5), (16, 45.3))
    arrow((31.5, 41.7), (35.3, 41.7))
    arrow((64.5, 41.7), (68.3, 41.7))
    box(
        2, 28.5, 96, "training: the boosting loop; its four parts are chosen by the factory", python
    )
    arrow((50, 38.5), (50, 34.8))
    columns = (2, 27, 52, 77)
    parts = ("raw scores", "tree builder", "leaf fitter", "model")
    cores = (
        "losses: gradients,\nHessians, quantised",
        "grower, search,\nsplit_gain: a Tree",
        "leaves: a vector, k\nvalues or functions",
        "forest: prediction\nexplain: SHAP values",
    )
    for x, part, text in zip(columns, parts, cores, strict=True):
        arrow((x + 10.5, 28), (x + 10.5, 24.8))
        box(x, 18.5, 21, part, python)
        arrow((x + 10.5, 18), (x + 10.5, 14.8))
        box(x, 7, 21, text, core, 7)
    for x in columns[:3]:
        arrow((x + 21.5, 21.2), (x + 24.3, 21.2))
    axes.text(2, 2, "Python package", color=python, fontsize=9)
    axes.text(20, 2, "C++ core (CPU; CUDA implements the same interfaces)", color=core, fontsize=9)


# --- report ---------------------------------------------------------------------------------------


def write_report_pictures() -> None:
    """Write the top of a report as PNG in both themes, by Chromium."""
    from playwright.sync_api import sync_playwright

    energy = load("energy")
    X, X_test, y, y_test = energy.split()
    X, X_test = (pd.DataFrame(rows, columns=energy.feature_names) for rows in (X, X_test))
    y, y_test = (pd.DataFrame(rows, columns=energy.output_names) for rows in (y, y_test))
    model = PolyleafRegressor(n_estimators=100, **ONE_THREAD).fit(X, y, X_val=X_test, y_val=y_test)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        page = Path(folder) / "report.html"
        make_report(model, X_test, y_test, title="Energy").save(page)
        browser = playwright.chromium.launch(
            executable_path=os.environ.get("CHROMIUM", "/usr/bin/chromium"), args=["--no-sandbox"]
        )
        for theme in THEMES:
            context = browser.new_context(
                viewport={"width": 900, "height": 820}, color_scheme=theme.name
            )
            tab = context.new_page()
            tab.goto(page.as_uri())
            tab.locator("h2", has_text="Features").first.evaluate("node => node.scrollIntoView()")
            tab.screenshot(path=FOLDER / f"report-{theme.name}.png")
        browser.close()


# --- writing --------------------------------------------------------------------------------------


def write(name: str, theme: Theme, folder: Path) -> Path:
    """Draw a picture in a theme and return its path. The same picture gives the same bytes."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    draw, size = PICTURES[name]
    settings = {
        "svg.fonttype": "none", "svg.hashsalt": name, "font.size": 9, "axes.titlesize": 9.5,
        "axes.grid": True, "grid.alpha": 0.25, "grid.color": theme.faint, "lines.linewidth": 1.5,
        "axes.edgecolor": theme.faint, "axes.labelcolor": theme.ink, "text.color": theme.ink,
        "xtick.color": theme.faint, "ytick.color": theme.faint, "xtick.labelcolor": theme.ink,
        "ytick.labelcolor": theme.ink, "axes.facecolor": "none", "figure.facecolor": "none",
        "legend.frameon": False, "legend.fontsize": 8.5, "axes.spines.top": False,
        "axes.spines.right": False, "axes.prop_cycle": pyplot.cycler(color=theme.colors),
        "image.interpolation": "none",
    }  # fmt: skip
    path = folder / f"{name}-{theme.name}.svg"
    with pyplot.rc_context(settings):
        figure = pyplot.figure(figsize=size, layout="constrained")
        draw(figure, theme)
        # White behind black text, as code hosts show the light picture on dark pages too.
        background = "white" if theme.name == "light" else "none"
        figure.savefig(path, metadata={"Date": None}, facecolor=background)
        pyplot.close(figure)
    return path


def main() -> None:
    """Write the pictures that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", help=", ".join([*PICTURES, "report"]))
    names = parser.parse_args().names or [*PICTURES, "report"]
    FOLDER.mkdir(exist_ok=True)
    for name in names:
        if name == "report":
            write_report_pictures()
        else:
            print(*(write(name, theme, FOLDER) for theme in THEMES))


if __name__ == "__main__":
    main()
