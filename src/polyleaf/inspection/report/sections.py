"""The sections of a report, each a function of its subject; None where there is nothing to say.

Owns which figures and pictures stand where, and how many. Must not know how pictures become text, or HTML.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from polyleaf.data.binning import MISSING_CODE
from polyleaf.distributions import Distribution
from polyleaf.inspection.model_summary import size_report
from polyleaf.inspection.plotting import (
    CalibrationDisplay,
    CoverageDisplay,
    ImportanceDisplay,
    LearningCurvesDisplay,
    OutputsDisplay,
    TreeDisplay,
)
from polyleaf.inspection.plotting.display import predict_probabilities
from polyleaf.inspection.report.laws import heights, intervals
from polyleaf.inspection.report.page import Section, facts, figure, note, table
from polyleaf.inspection.report.pictures import picture
from polyleaf.inspection.report.subject import MultiTaskReportData, ReportData, SingleTaskReportData
from polyleaf.settings.param_spec import get_param_specs

__all__ = ["ALL", "all_of_tasks"]

_MOST_ROWS = 40  # of a table
_MOST_FEATURES = 15  # of a picture
_MOST_CURVES = 12
_MOST_POINTS = 3000
_MOST_LEAVES = 32  # of a tree that is drawn
_MOST_DRAWN = 4  # outputs with a picture of their own
_MOST_TASKS = 8  # with a section of their own


def _number(value: float) -> str:
    return "" if np.isnan(value) else f"{value:.4g}"


def _shortened(rows: list[list[str]], what: str) -> tuple[list[list[str]], str]:
    """The first rows, and a sentence about the others."""
    left = len(rows) - _MOST_ROWS
    return rows[:_MOST_ROWS], note(
        f"The first {_MOST_ROWS} of {len(rows)} {what}."
    ) if left > 0 else ""


def _on(draw: Callable[..., Any]) -> Callable[[Any], Any]:
    """Something that takes axes by name, for `picture`."""
    return lambda ax: draw(ax=ax)


# --- what it is ------------------------------------------------------------------------------------


def model(subject: ReportData) -> Section:
    """The trees, and the parameters that are not the usual ones."""
    it, estimator, size = subject.model, subject.estimator, size_report(subject.model)
    usual = {p.name: p.default for p in get_param_specs(type(estimator))}
    given = estimator.get_params(deep=False)
    changed = [name for name, default in usual.items() if repr(given[name]) != repr(default)]
    best = it.best_iteration
    data = estimator.save_model()
    pairs = [
        ("estimator", type(estimator).__name__),
        ("objective", str(it.objective.to_dict().get("name", "its own"))),
        ("trees", f"{size['trees']:,} in {size['rounds']:,} rounds"),
        (
            "best round",
            "none was looked for"
            if best is None
            else f"{best + 1}: predictions use rounds up to it",
        ),
        (
            "leaves",
            f"{size['leaves']:,} ({', '.join(f'{n} trees {kind}' for kind, n in size['kinds'].items())})",
        ),
        ("depth", f"{size['depth']['min']} to {size['depth']['max']}"),
        ("features used", f"{size['features_used']} of {size['features']}"),
        ("file", f"{len(data):,} bytes, SHA-256 {hashlib.sha256(data).hexdigest()}"),
        (
            "parameters",
            ", ".join(f"{name}={given[name]!r}" for name in changed) or "the usual ones",
        ),
    ]
    return Section("model", "The model", facts(pairs))


def data(subject: SingleTaskReportData) -> Section:
    """The rows that it is measured on."""
    return Section("data", "The data", _targets(subject) + _gaps(subject))


def _gaps(subject: ReportData) -> str:
    it, codes = subject.model, subject.coded.codes
    missing = (codes == MISSING_CODE).mean(axis=1)
    order = np.argsort(-missing, kind="stable")
    gaps = [[it.feature_name(int(f)), f"{missing[f]:.1%}"] for f in order if missing[f] > 0]
    shown, rest = _shortened(gaps, "features with missing values")
    if not gaps:
        return note("No value is missing.")
    return table(["missing or not seen in training", "rows"], shown) + rest


def _targets(subject: SingleTaskReportData) -> str:
    y, names = subject.y, subject.target_names
    if subject.task == "classification":
        return ""  # classes are counted beside their scores
    Y = y.reshape(len(y), -1)
    if subject.task == "multilabel":
        rows = [
            [name, f"{int(column.sum()):,}", f"{column.mean():.1%}"]
            for name, column in zip(names, Y.T, strict=True)
        ]
        shown, rest = _shortened(rows, "labels")
        return table(["label", "rows", "share"], shown) + rest
    rows = []
    for name, column in zip(names, Y.T, strict=True):
        known = column[~np.isnan(column)]
        numbers = (
            [known.mean(), known.std(), known.min(), known.max()] if known.size else [np.nan] * 4
        )
        rows.append([name, *map(_number, numbers), f"{1 - known.size / len(column):.1%}"])
    shown, rest = _shortened(rows, "targets")
    return table(["target", "mean", "spread", "least", "largest", "not known"], shown) + rest


# --- how good it is --------------------------------------------------------------------------------


def scores(subject: SingleTaskReportData) -> Section:
    """Of all outputs, and of each."""
    of_all, each = subject.scores
    content = table(["", *of_all], [["all together", *map(_number, of_all.values())]])
    if each:
        names = list(next(iter(each.values())))
        rows = [[name, *(_number(found[n]) for n in names)] for name, found in each.items()]
        shown, rest = _shortened(rows, "targets")
        content += f"<h3>Each by itself</h3>{table(['', *names], shown)}{rest}"
    if subject.task == "classification":
        content += _classes(subject)
    return Section("scores", "How good it is", content)


def _classes(subject: SingleTaskReportData) -> str:
    """Of each class: how many of its rows were found, and how many that were taken for it are of it."""
    rows = []
    for name in np.unique(subject.y):
        of_class, taken = subject.y == name, subject.predicted == name
        right = float((of_class & taken).sum())
        precision = right / taken.sum() if taken.any() else np.nan
        rows.append(
            [
                str(name),
                f"{int(of_class.sum()):,}",
                _number(right / of_class.sum()),
                _number(precision),
            ]
        )
    shown, rest = _shortened(rows, "classes")
    return f"<h3>Each class by itself</h3>{table(['class', 'rows', 'recall', 'precision'], shown)}{rest}"


def outputs(subject: SingleTaskReportData) -> Section | None:
    """Outputs beside one another."""
    if len(subject.target_names) < 2:
        return None
    seen = subject.estimator, subject.X, subject.y
    draw = partial(OutputsDisplay.from_estimator, *seen, offset=subject.offset)
    content = figure(
        picture(f"{subject.mark}outputs", "A metric of each output", _on(draw)),
        "Each output beside what a constant achieves: where both are alike, nothing was learned.",
    )
    if subject.task == "regression" and not subject.model.objective.quantile_levels:
        content += _errors_together(subject)
    return Section("outputs", "Outputs beside one another", content)


def _errors_together(subject: SingleTaskReportData) -> str:
    errors = subject.y - subject.predicted.reshape(subject.y.shape)
    errors = np.where(np.isnan(errors), np.nanmean(errors, axis=0), errors)
    spread = errors.std(axis=0)
    centred = (errors - errors.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    together = centred.T @ centred / len(errors)
    names = subject.target_names

    def draw(ax: Any) -> None:
        image = ax.imshow(together, cmap="RdBu_r", vmin=-1, vmax=1)
        shown = range(0, len(names), max(1, len(names) // 20))
        ax.set_xticks(shown, [names[k] for k in shown], rotation=45, ha="right")
        ax.set_yticks(shown, [names[k] for k in shown])
        ax.figure.colorbar(image, ax=ax, label="correlation")

    return figure(
        picture(f"{subject.mark}errors", "Correlations of errors", draw, (5.2, 4.2)),
        "Correlations of the errors: outputs that are missed together have something in common that the "
        "features do not tell.",
    )


def curves(subject: ReportData) -> Section:
    """Metrics after each round."""
    logs, drawn = subject.estimator.evals_result_, []
    known = dict.fromkeys(name for metrics in logs.values() for name in metrics)
    of_tasks = tuple(f"{place.task.name}: " for place in subject.model.objective.tasks)
    for i, metric in enumerate(
        [name for name in known if not name.startswith(of_tasks or ("\0",))][:3]
    ):
        draw = partial(LearningCurvesDisplay.from_estimator, subject.estimator, metric)
        svg = picture(f"{subject.mark}curve{i}", f"{metric} after each round", _on(draw))
        drawn.append(figure(svg, f"{metric} after each round."))
    nothing = note("No curves: the model was trained without evaluation sets.")
    return Section("curves", "Training", "".join(drawn) or ("" if known else nothing))


def truth(subject: SingleTaskReportData) -> Section | None:
    """Whether probabilities, quantiles and intervals hold what they say; numbers beside the truth."""
    estimator, content = subject.estimator, ""
    if subject.probabilities is not None or subject.model.objective.quantile_levels:
        draw = _calibration(subject)
        what = "How often what was said came true: on the diagonal as often as said."
        content += figure(
            picture(f"{subject.mark}calibration", "Calibration", draw, (4.6, 4.4)), what
        )
    if "intervals" in subject.model.metadata:
        draw = partial(
            CoverageDisplay.from_estimator, estimator, subject.X, subject.y, offset=subject.offset
        )
        what = "The share of rows inside their interval, with two standard errors; dashed: what was asked for."
        content += figure(
            picture(f"{subject.mark}coverage", "Coverage of intervals", _on(draw)), what
        )
    if subject.distribution is not None:
        content += _laws(subject)
    if subject.task == "regression" and not subject.model.objective.quantile_levels:
        content += _against_truth(subject)
    return Section("truth", "What was said and what was", content) if content else None


def _laws(subject: SingleTaskReportData) -> str:
    """Whether distributions hold what they say, and how narrow they are."""
    law, drawn, rows = subject.distribution, "", []
    assert law is not None
    y = subject.y.reshape(law.shape)
    for k, name in enumerate(subject.target_names):
        known = ~np.isnan(y if y.ndim == 1 else y[:, k])
        if not known.any():
            continue
        own, truth = (law, y) if y.ndim == 1 else (law[:, k], y[:, k])
        own, truth = own[known], truth[known]
        for i in intervals(truth, own):
            shares = f"{i.share:.1%} ± {2 * i.error:.1%}"
            rows.append([name, f"{i.coverage:.0%}", shares, _number(i.width)])
        if k < _MOST_DRAWN:
            svg = picture(
                f"{subject.mark}law{k}",
                f"Where {name} lies in its distributions",
                _histogram(truth, own),
            )
            what = (
                f"{name}: the probability that its distribution gives to what is not above the truth. Even "
                "where distributions are right; high at both ends where they are too narrow, in the middle "
                "where they are too wide."
            )
            drawn += figure(svg, what)
    shown, rest = _shortened(rows, "rows")
    header = ["", "interval", "holds, ± two standard errors", "mean width"]
    return drawn + table(header, shown) + rest


def _histogram(y: np.ndarray, law: Distribution) -> Callable[[Any], Any]:
    found = heights(y, law)

    def draw(ax: Any) -> None:
        ax.bar((np.arange(len(found)) + 0.5) / len(found), found, width=0.94 / len(found))
        ax.axhline(1.0, color="grey", linewidth=0.8, linestyle="--")
        ax.set(
            xlabel="probability up to the truth", ylabel="rows, beside an even share", xlim=(0, 1)
        )

    return draw


def _calibration(subject: SingleTaskReportData) -> Callable[[Any], Any]:
    if subject.probabilities is None:
        seen = subject.estimator, subject.X, subject.y
        return lambda ax: CalibrationDisplay.from_estimator(*seen, offset=subject.offset, ax=ax)
    holds, said, names = predict_probabilities(
        subject.estimator, subject.X, subject.y, subject.offset
    )
    if len(names) > _MOST_CURVES:  # all of them as one
        holds, said, names = holds.reshape(-1, 1), said.reshape(-1, 1), ["all"]
    return lambda ax: CalibrationDisplay.from_predictions(holds, said, names, ax=ax)


def _against_truth(subject: SingleTaskReportData) -> str:
    y = subject.y.reshape(len(subject.y), -1)
    predicted, drawn = subject.predicted.reshape(y.shape), []
    for k, name in enumerate(subject.target_names[:_MOST_DRAWN]):

        def draw(ax: Any, k: int = k, name: str = name) -> None:
            known = ~np.isnan(y[:, k])
            ends = (
                [float(f(values[known, k])) for f, values in ((min, y), (max, y))]
                if known.any()
                else [0.0, 1.0]
            )
            shown = np.flatnonzero(known)[:_MOST_POINTS]
            ax.scatter(
                y[shown, k], predicted[shown, k], s=5, alpha=0.5, linewidths=0, rasterized=True
            )
            ax.plot(ends, ends, color="grey", linewidth=0.8, linestyle="--")
            ax.set(xlabel=f"{name}, known", ylabel="predicted")

        svg = picture(
            f"{subject.mark}truth{k}",
            f"Predictions of {name} against what is known",
            draw,
            (4.6, 3.6),
        )
        drawn.append(
            figure(svg, f"{name}: a point a row; on the dashed line the prediction is right.")
        )
    left = len(subject.target_names) - _MOST_DRAWN
    return "".join(drawn) + (
        note(f"The first {_MOST_DRAWN} of {len(subject.target_names)} targets.") if left > 0 else ""
    )


# --- why -------------------------------------------------------------------------------------------


def importances(subject: ReportData) -> Section:
    """What features matter, to the trees and to the predictions."""
    names, kind = subject.model.input_names, subject.gain_or_splits
    draw = ImportanceDisplay(
        subject.split_importance, names, kind=kind, max_features=_MOST_FEATURES
    ).plot
    content = figure(
        picture(f"{subject.mark}gain", f"Importance by {kind}", draw),
        f"By the {kind} of the splits in training.",
    )
    if subject.explained is None:
        why = note(
            "Contributions were not worked out: too many, or the model was saved without its counts."
        )
        return Section("features", "Features", content + why)
    mean = subject.mean_contribution
    several = len(mean) > 1
    shap = ImportanceDisplay(
        mean if several else mean[0], names, subject.output_names, "shap", _MOST_FEATURES
    )
    what = (
        "By the mean magnitude of what they add to the raw scores of these rows (Shapley's values)."
    )
    content += figure(
        picture(f"{subject.mark}shap", "Importance by contributions", shap.plot, (6.4, 4.2)), what
    )
    return Section("features", "Features", content + _summaries(subject))


def _summaries(subject: ReportData) -> str:
    """Contributions row by row, for the outputs where they are largest."""
    assert subject.explained is not None
    order = np.argsort(-subject.mean_contribution.mean(axis=1), kind="stable")[:2]
    drawn = ""
    for k in order.tolist():
        name = subject.output_names[k] if subject.model.n_outputs > 1 else "the score"
        svg = picture(
            f"{subject.mark}summary{k}",
            f"Contributions to {name}",
            partial(_swarm, subject, k),
            (6.4, 4.2),
        )
        drawn += figure(
            svg,
            f"What each feature adds to {name}, a point for each of {len(subject.rows_explained)} rows: blue "
            "where the feature is low, red where it is high, grey where it is missing or a category.",
        )
    return drawn


def _swarm(subject: ReportData, output: int, ax: Any) -> None:
    values, mapper = subject.explained, subject.model.mapper
    assert values is not None
    codes = subject.coded.codes[:, subject.rows_explained]
    top = np.argsort(-subject.mean_contribution[output], kind="stable")[:10]
    for place, f in enumerate(top.tolist()):
        x = values[:, f, output]
        colour = np.full((len(x), 4), (0.55, 0.55, 0.55, 0.8))
        if f < len(mapper.n_bins_) and not mapper.is_categorical_[f]:
            present = codes[f] != MISSING_CODE
            colour[present] = _between(codes[f][present] / max(1, int(mapper.n_bins_[f]) - 1))
        ax.scatter(x, place + _side_by_side(x), c=colour, s=6, linewidths=0, rasterized=True)
    ax.axvline(0, color="grey", linewidth=0.8)
    ax.set_yticks(range(len(top)), [subject.model.input_names[f] for f in top])
    ax.set(xlabel="contribution")
    ax.invert_yaxis()


def _between(share: np.ndarray) -> np.ndarray:
    """From blue to red, which are told from light and dark pages alike."""
    low, high = np.array([0.12, 0.47, 0.9, 0.9]), np.array([0.9, 0.15, 0.25, 0.9])
    return low + share[:, None] * (high - low)


def _side_by_side(x: np.ndarray) -> np.ndarray:
    """How far from the line points are put, so that those of like values do not hide one another."""
    places = np.zeros(len(x))
    span = float(np.ptp(x)) or 1.0
    cells = np.floor((x - x.min()) / span * 60).astype(int)
    for cell in np.unique(cells):
        rows = np.flatnonzero(cells == cell)
        places[rows] = (np.arange(len(rows)) - (len(rows) - 1) / 2) * min(0.06, 0.7 / len(rows))
    return places


def trees(subject: ReportData) -> Section | None:
    """The first tree, and one from the middle."""
    it, drawn = subject.model, ""
    for number in dict.fromkeys((0, it.n_trees // 2)) if it.n_trees else ():
        if it.trees[number].structure.n_leaves > _MOST_LEAVES:
            continue
        display = TreeDisplay(it, number)
        width = max(6.0, 0.9 * (display.position[:, 0].max() + 1))
        size = (width, 1.1 * (2 - display.position[:, 1].min()))
        svg = picture(f"tree{number}", f"Tree {number}", display.plot, size)
        drawn += figure(
            svg,
            "Each leaf is a strip with a cell for each output: red adds, blue takes away.",
            full=True,
        )
    return Section("trees", "Trees", drawn) if drawn else None


ALL = (model, data, scores, curves, outputs, truth, importances, trees)


# --- several tasks -----------------------------------------------------------------------------------


def all_of_tasks(subject: MultiTaskReportData) -> list[Section]:
    """What tasks share, and a section for each."""
    shared = [model(subject), Section("data", "The data", _gaps(subject)), _skills(subject)]
    together = curves(subject)
    shared += [together] if together.content else []
    each = [_of_task(name, task) for name, task in list(subject.tasks.items())[:_MOST_TASKS]]
    last = [importances(subject), trees(subject)]
    return shared + each + [section for section in last if section is not None]


def _skills(subject: MultiTaskReportData) -> Section:
    """How good each task is, in a figure that all have."""
    rows = [
        [
            name,
            str(task.model.objective.to_dict().get("name", "its own")),
            f"{len(task.y):,}",
            _number(skill),
        ]
        for (name, task), skill in zip(subject.tasks.items(), subject.skills.values(), strict=True)
    ]
    shown, rest = _shortened(rows, "tasks")
    what = note(
        "Skill: the share of the best constant's error that predictions are without. 1 is the best."
    )
    left = len(subject.tasks) - _MOST_TASKS
    few = note(f"The first {_MOST_TASKS} have a section of their own.") if left > 0 else ""
    content = table(["task", "loss", "rows", "skill"], shown) + rest + what + few
    return Section("scores", "How good it is", content)


def _of_task(name: str, subject: SingleTaskReportData) -> Section:
    """What there is to say of one task, under its name."""
    parts = [scores(subject), outputs(subject), truth(subject)]
    if subject.estimator.evals_result_:
        parts.insert(1, curves(subject))
    content = _targets(subject) + "".join(part.content for part in parts if part is not None)
    return Section(subject.mark.rstrip("-"), name, content)
