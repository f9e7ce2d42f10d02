"""The sections of a report and their HTML and SVG; a section is None if it would be empty.

The page has no scripts or external resources. It works on light and dark screens, on narrow screens
and on paper. All text from data is escaped.
"""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from sklearn.metrics import ConfusionMatrixDisplay

from polyleaf.binned_data.binning import MISSING_CODE
from polyleaf.inspection.model_summary import size_report
from polyleaf.inspection.plotting import (
    CalibrationDisplay,
    CoverageDisplay,
    ImportanceDisplay,
    LearningCurvesDisplay,
    OutputGroupsDisplay,
    OutputsDisplay,
    ParetoDisplay,
    TreeDisplay,
)
from polyleaf.inspection.plotting.display import (
    REFERENCE_LINE,
    import_pyplot,
    label_outputs,
    predict_probabilities,
)
from polyleaf.inspection.report.report_data import (
    MultiTaskReportData,
    RankingReportData,
    ReportData,
    SingleTaskReportData,
    compute_coverage_table,
    compute_pit_histogram,
)
from polyleaf.model import Model
from polyleaf.model.metadata import MEMBERS, OUTPUT_GROUPS
from polyleaf.settings.param_spec import get_param_specs

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_STYLE = """
:root { color-scheme: light dark; --page: #fff; --ink: #1b1f24; --faint: #68707a; --line: #d9dde2;
  --first: #1f77b4; --second: #d3d3d3; }
@media (prefers-color-scheme: dark) {
  :root { --page: #15181c; --ink: #e4e7eb; --faint: #9aa3ad; --line: #363c44;
    --first: #58a9e0; --second: #59616b; }
}
@media print {
  :root { --page: #fff; --ink: #000; --faint: #444; --line: #bbb;
    --first: #1f77b4; --second: #d3d3d3; }
  figure { break-inside: avoid; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 62rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.6rem; margin: .5rem 0 0; }
h2 { font-size: 1.2rem; margin: 2.2rem 0 .6rem; padding-top: .4rem;
  border-top: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 1.2rem 0 .3rem; }
p { margin: .4rem 0; max-width: 46rem; }
nav { display: flex; flex-wrap: wrap; gap: .2rem 1rem; margin-top: .8rem; font-size: .9rem; }
a { color: inherit; }
.faint { color: var(--faint); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums;
  margin: .4rem 0; }
th, td { padding: .2rem .7rem .2rem 0; text-align: right; white-space: nowrap; }
tr { border-bottom: 1px solid var(--line); }
th:first-child, td:first-child { text-align: left; }
thead th { color: var(--faint); font-weight: 600; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1.2rem; margin: .4rem 0; }
dt { color: var(--faint); }
dd { margin: 0; overflow-wrap: anywhere; }
@media (max-width: 30rem) { dl { grid-template-columns: 1fr; } dt { margin-top: .4rem; } }
figure { margin: .6rem 0; }
figure svg { display: block; max-width: 100%; height: auto; min-width: 24rem; }
figure.full svg { max-width: none; }
figcaption { color: var(--faint); font-size: .9rem; max-width: 46rem; }
""".strip()

# Placeholders for the page's text and background colours, which matplotlib does not know.
_INK, _BACKGROUND = "#010203", "#ffffff"
# matplotlib's first colour and light grey do not suit a dark page.
_PAGE_COLOURS = {"#1f77b4": "var(--first)", "#d3d3d3": "var(--second)"}
_RC_PARAMS: dict[str, object] = {
    "text.parse_math": False,  # dollar signs in users' names are not formulas
    "svg.fonttype": "none",  # keep text as text, in the font of the page
    "font.family": "sans-serif",
    "font.size": 9.0,
    "text.color": _INK,
    "axes.labelcolor": _INK,
    "axes.edgecolor": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "savefig.facecolor": "none",
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


class Section(NamedTuple):
    """A section: its id, heading and HTML content."""

    name: str
    heading: str
    content: str


def render_page(title: str, lead: str, sections: Sequence[Section], foot: str) -> str:
    """Render the document."""
    links = "".join(f'<a href="#{s.name}">{escape(s.heading)}</a>' for s in sections)
    body = "\n".join(
        f'<section id="{s.name}">\n<h2>{escape(s.heading)}</h2>\n{s.content}\n</section>'
        for s in sections
    )
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{_STYLE}\n</style>\n</head>\n<body>\n<main>\n"
        f"<h1>{escape(title)}</h1>\n<p>{escape(lead)}</p>\n<nav>{links}</nav>\n{body}\n"
        f'<p class="faint">{escape(foot)}</p>\n</main>\n</body>\n</html>\n'
    )


def render_facts(pairs: Iterable[tuple[str, str]]) -> str:
    """Render a list of names and values."""
    items = (f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in pairs)
    return f"<dl>{''.join(items)}</dl>"


def render_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Render a table of text, whose first column names the rows."""
    heads = "".join(f'<th scope="col">{escape(name)}</th>' for name in header)
    lines = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>\n" for row in rows
    )
    head = f"<thead><tr>{heads}</tr></thead>"
    return f'<div class="wide"><table>\n{head}\n<tbody>\n{lines}</tbody>\n</table></div>'


def render_figure(svg: str, caption: str, full: bool = False) -> str:
    """Render an SVG with a caption; `full` keeps its width and lets it scroll."""
    kind = ' class="full"' if full else ""
    caption = f"<figcaption>{escape(caption)}</figcaption>"
    return f'<figure{kind}><div class="wide">{svg}</div>{caption}</figure>'


def _draw_figure(
    data: ReportData,
    name: str,
    label: str,
    caption: str,
    draw: Callable[..., object],
    size: tuple[float, float] = (6.4, 3.4),
) -> str:
    """Render a figure of some data; see `render_svg` and `render_figure`."""
    return render_figure(render_svg(f"{data.prefix}{name}", label, draw, size), caption)


def render_note(text: str) -> str:
    """Render a paragraph."""
    return f"<p>{escape(text)}</p>"


def render_svg(
    name: str, label: str, draw: Callable[[Axes], object], size: tuple[float, float] = (6.4, 3.4)
) -> str:
    """Draw an inline SVG, which has the same bytes each time.

    Raises an ImportError if matplotlib is not installed.

    `name`: unique on the page, as the ids in the SVG depend on it. `label`: the description for
    screen readers. `draw`: `draw(ax)` draws on these axes. `size`: width and height in inches.
    """
    import_pyplot()
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    stream = io.StringIO()
    parameters: Any = {**matplotlib.rcParamsDefault, **_RC_PARAMS, "svg.hashsalt": name}
    with matplotlib.rc_context(parameters):
        # The page's font may be wider than the one that texts are measured with.
        figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(w_pad=0.15))
        draw(figure.subplots())
        figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None})
    return _make_inline(stream.getvalue(), label)


def _make_inline(svg: str, label: str) -> str:
    """Remove what only a separate file requires, and use the colours and font of the page."""
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.S)
    svg = svg.replace(_INK, "currentColor").replace(_BACKGROUND, "var(--page)")
    for colour, variable in _PAGE_COLOURS.items():
        svg = svg.replace(colour, variable)
    svg = re.sub(r"<!--.*?-->", "", svg, flags=re.S)
    used = set(re.findall(r"#([\w.-]+)", svg))
    svg = re.sub(r' id="([^"]*)"', lambda found: found[0] if found[1] in used else "", svg)
    svg = re.sub(r"font: ([\d.]+)px [^;\"]*", r"font: \1px system-ui, sans-serif", svg)
    svg = re.sub(r"\n\s*", "\n", svg)
    return svg.replace("<svg ", f'<svg role="img" aria-label="{escape(label)}" ', 1).strip()


_MAX_TABLE_ROWS = 40
_MAX_FEATURES = 15
_MAX_CURVES = 12
_MAX_CONFUSED, _MAX_WRITTEN = 30, 8  # classes of a confusion matrix, and of one with numbers
_MAX_POINTS = 3000
_MAX_LEAVES = 32  # of a tree that is drawn
_MAX_TARGET_FIGURES = 4  # targets with a figure of their own
_MAX_TASKS = 8  # tasks with a section of their own


def make_sections(data: SingleTaskReportData) -> list[Section]:
    """Make the sections for a single task."""
    sections = [
        _model(data),
        Section("data", "Data", _targets(data) + _missing_values(data)),
        _scores(data),
        _curves(data),
        _outputs(data),
        _reliability(data),
        _features(data),
        _trees(data),
    ]
    return [section for section in sections if section is not None]


def make_multitask_sections(data: MultiTaskReportData) -> list[Section]:
    """Make the shared sections of several tasks, and one for each task."""
    sections = [
        _model(data),
        Section("data", "Data", _missing_values(data)),
        _task_scores(data),
        _curves(data),
        *(_task(name, task) for name, task in list(data.tasks.items())[:_MAX_TASKS]),
        _features(data),
        _trees(data),
    ]
    return [section for section in sections if section is not None and section.content]


def make_ranking_sections(data: RankingReportData) -> list[Section]:
    """Make the sections for a ranking."""
    sections = [
        _model(data),
        Section("data", "Data", _missing_values(data)),
        _ranking_scores(data),
        _trade_offs(data),
        _curves(data),
        _features(data),
        _trees(data),
    ]
    return [section for section in sections if section is not None]


def _format(value: float) -> str:
    return "" if np.isnan(value) else f"{value:.4g}"


def _long_table(header: Sequence[str], rows: list[list[str]], items: str) -> str:
    """Render the first rows of a table, and a note if there are more."""
    table = render_table(header, rows[:_MAX_TABLE_ROWS])
    return table + _note_rest(_MAX_TABLE_ROWS, len(rows), items)


def _note_rest(n_shown: int, n: int, items: str) -> str:
    return render_note(f"The first {n_shown} of {n} {items}.") if n > n_shown else ""


def _draw(
    draw: Callable[..., object], *arguments: object, **keywords: object
) -> Callable[[object], object]:
    """Return a function of axes for `render_svg`."""
    return lambda ax: draw(*arguments, **keywords, ax=ax)


# --- the model and the data -----------------------------------------------------------------------


def _model(data: ReportData) -> Section:
    """Show the size of the model, and the parameters that differ from their defaults."""
    model, estimator, size = data.model, data.estimator, size_report(data.model)
    defaults = {p.name: p.default for p in get_param_specs(type(estimator))}
    values = estimator.get_params(deep=False)
    changed = [name for name, default in defaults.items() if repr(values[name]) != repr(default)]
    best = model.best_iteration
    file = estimator.model_.to_bytes(evals_log=estimator.evals_result_)
    kinds = ", ".join(f"{n} trees {kind}" for kind, n in size["kinds"].items())
    pairs = [
        ("estimator", type(estimator).__name__),
        ("objective", _objective_name(model)),
        ("trees", f"{size['trees']:,} in {size['rounds']:,} rounds"),
        ("best round", "no early stopping" if best is None else f"{best + 1}, used to predict"),
        ("leaves", f"{size['leaves']:,} ({kinds})"),
        ("depth", f"{size['depth']['min']} to {size['depth']['max']}"),
        ("features used", f"{size['features_used']} of {size['features']}"),
        ("file", f"{len(file):,} bytes, SHA-256 {hashlib.sha256(file).hexdigest()}"),
        ("parameters", ", ".join(f"{name}={values[name]!r}" for name in changed) or "defaults"),
        *((f"member {i}", text) for i, text in enumerate(describe_members(model), 1)),
    ]
    return Section("model", "Model", render_facts(pairs))


def describe_members(model: Model) -> list[str]:
    """Return the weight, the rounds and the parameters of each member that `quality` has chosen."""
    return [
        ", ".join(f"{name}={value!r}" for name, value in member.items())
        for member in model.metadata.get(MEMBERS, ())
    ]


def _objective_name(model: Model) -> str:
    return str(model.objective.to_dict().get("name", "custom"))


def _missing_values(data: ReportData) -> str:
    drift = _drift(data)
    missing = (data.binned_rows.codes == MISSING_CODE).mean(axis=1)
    order = np.argsort(-missing, kind="stable")
    rows = [[data.model.feature_name(int(f)), f"{missing[f]:.1%}"] for f in order if missing[f] > 0]
    if not rows:
        return drift + render_note("There are no missing values.")
    header = ["missing or unseen values", "rows"]
    return drift + _long_table(header, rows, "features with missing values")


def _drift(data: ReportData) -> str:
    """Name the features whose distribution differs from that of the training rows."""
    drift = data.drift
    if drift is None:
        return ""
    order = np.argsort(-np.nan_to_num(drift.psi), kind="stable")
    names = [f"{drift.feature_names[f]} ({drift.psi[f]:.2g})" for f in order if drift.is_drifted[f]]
    if not names:
        return render_note("The features are distributed as in the training rows.")
    more = f" and {len(names) - _MAX_FEATURES} more" if len(names) > _MAX_FEATURES else ""
    return render_note(
        "Features that are distributed otherwise than in the training rows (population stability "
        f"index): {', '.join(names[:_MAX_FEATURES])}{more}."
    )


def _targets(data: SingleTaskReportData) -> str:
    if data.task == "classification":
        return ""  # the table of scores counts the classes
    Y = data.y.reshape(len(data.y), -1)
    if data.task == "multilabel":
        rows = [
            [name, f"{int(np.nansum(column)):,}", f"{column[~np.isnan(column)].mean():.1%}"]
            for name, column in zip(data.target_names, Y.T, strict=True)
        ]
        return _long_table(["label", "rows", "share"], rows, "labels")
    rows = []
    for name, column in zip(data.target_names, Y.T, strict=True):
        known = column[~np.isnan(column)]
        values = [np.nan] * 4
        if known.size:
            values = [known.mean(), known.std(), known.min(), known.max()]
        rows.append([name, *map(_format, values), f"{1 - known.size / len(column):.1%}"])
    header = ["target", "mean", "standard deviation", "minimum", "maximum", "missing"]
    return _long_table(header, rows, "targets")


# --- accuracy -------------------------------------------------------------------------------------


def _scores(data: SingleTaskReportData) -> Section:
    """Show the scores of all outputs, and of each."""
    overall, each = data.scores
    content = render_table(["", *overall], [["all", *map(_format, overall.values())]])
    if each:
        names = list(next(iter(each.values())))
        rows = [[name, *(_format(scores[n]) for n in names)] for name, scores in each.items()]
        content += f"<h3>By target</h3>{_long_table(['', *names], rows, 'targets')}"
    if data.task == "classification":
        content += _class_scores(data)
    return Section("scores", "Scores", content)


def _class_scores(data: SingleTaskReportData) -> str:
    rows = []
    for name in np.unique(data.y):
        true, predicted = data.y == name, data.predicted == name
        right = float((true & predicted).sum())
        precision = right / predicted.sum() if predicted.any() else np.nan
        counts = [str(name), f"{int(true.sum()):,}"]
        shown = "" if np.isnan(precision) else f"{precision:.3f}"
        rows.append([*counts, f"{right / true.sum():.3f}", shown])
    header = ["class", "rows", "recall", "precision"]
    table = f"<h3>By class</h3>{_long_table(header, rows, 'classes')}"
    return table + _confusion_matrix(data, len(rows))


def _confusion_matrix(data: SingleTaskReportData, n_classes: int) -> str:
    if not 2 <= n_classes <= _MAX_CONFUSED:
        return ""

    def draw(ax: Axes) -> None:
        ConfusionMatrixDisplay.from_predictions(
            data.y,
            data.predicted,
            normalize="true",
            values_format=".2f",
            include_values=n_classes <= _MAX_WRITTEN,
            xticks_rotation="horizontal" if n_classes <= _MAX_WRITTEN else "vertical",
            cmap="Blues",
            ax=ax,
            colorbar=False,
        )

    caption = "Confusion matrix: the share of the rows of a class that is predicted as each class."
    side = 3.4 + 0.1 * n_classes
    return _draw_figure(data, "confusion", "Confusion matrix", caption, draw, (side, side))


def _ranking_scores(data: RankingReportData) -> Section:
    """Show metrics of the queries over all scores, and of each."""
    rows = [["all", *(_format(value) for value, _ in data.metrics.values())]]
    if len(data.front) > 1:
        each = zip(*(values for _, values in data.metrics.values()), strict=True)
        rows += [[name, *map(_format, v)] for name, v in zip(data.output_names, each, strict=False)]
    note = render_note("Mean over the queries; with goal_weights, over goals by their weights.")
    return Section("scores", "Scores", note + _long_table(["", *data.metrics], rows, "scores"))


def _trade_offs(data: RankingReportData) -> Section | None:
    """Show the NDCG of each score by each goal."""
    n_goals = len(data.goal_names)
    if n_goals < 2:
        return None
    ranker: Any = data.estimator
    weights, chosen = ranker.goal_weights_, ranker.chosen_score_
    display = ParetoDisplay(data.front, weights, data.goal_names, chosen=chosen)
    rows = [
        [
            ", ".join(f"{weight:g}" for weight in weights[j]) + (" (chosen)" * (j == chosen)),
            *map(_format, data.front[j]),
            "yes" if display.is_optimal[j] else "",
        ]
        for j in range(len(weights))
    ]
    header = ["weights of the goals", *(f"NDCG of {name}" for name in data.goal_names), "on front"]
    content = _long_table(header, rows, "trade-offs")
    caption = "A point is the score with these weights of the two goals."
    content += _draw_figure(data, "front", "Trade-offs between goals", caption, display.plot)
    return Section("front", "Trade-offs", content)


def _outputs(data: SingleTaskReportData) -> Section | None:
    """Compare outputs with a constant, and their errors with each other."""
    if len(data.target_names) < 2:
        return None
    draw = _draw(OutputsDisplay.from_estimator, data.estimator, data.X, data.y, offset=data.offset)
    caption = "Each output next to a constant prediction."
    content = _draw_figure(data, "outputs", "A metric of each output", caption, draw)
    if len(data.model.output_groups) > 1 or OUTPUT_GROUPS in data.model.metadata:
        draw = _draw(OutputGroupsDisplay.from_estimator, data.estimator)
        caption = "Outputs of one colour share trees; the label says what sharing costs."
        content += _draw_figure(data, "groups", "Outputs that share trees", caption, draw)
    if data.is_mean_regression:
        content += _error_correlations(data)
    return Section("outputs", "Outputs", content)


def _error_correlations(data: SingleTaskReportData) -> str:
    errors = data.y - data.predicted.reshape(data.y.shape)
    errors = np.where(np.isnan(errors), np.nanmean(errors, axis=0), errors)
    deviations = errors.std(axis=0)
    standardised = (errors - errors.mean(axis=0)) / np.where(deviations > 0, deviations, 1.0)
    correlations = standardised.T @ standardised / len(errors)
    names = data.target_names

    def draw(ax: Axes) -> None:
        image = ax.imshow(correlations, cmap="RdBu_r", vmin=-1, vmax=1)
        shown = label_outputs(ax, names)
        ax.set_yticks(shown, [names[k] for k in shown])
        ax.figure.colorbar(image, ax=ax, label="correlation")

    caption = (
        "Correlations of the errors: correlated outputs share something that the features do not "
        "explain."
    )
    return _draw_figure(data, "errors", "Correlations of errors", caption, draw, (5.2, 4.2))


def _curves(data: ReportData) -> Section:
    """Draw the metrics after each round; metrics of one task are in the section of the task."""
    logs, figures = data.estimator.evals_result_, []
    known = dict.fromkeys(name for metrics in logs.values() for name in metrics)
    prefixes = tuple(f"{place.task.name}: " for place in data.model.objective.tasks)
    shared = [name for name in known if not name.startswith(prefixes or ("\0",))]
    for i, metric in enumerate(shared[:3]):
        label = f"{metric} after each round"
        draw = _draw(LearningCurvesDisplay.from_estimator, data.estimator, metric)
        figures.append(_draw_figure(data, f"curve{i}", label, f"{label}.", draw))
    if not known:
        figures.append(render_note("There are no learning curves without evaluation sets."))
    return Section("curves", "Training", "".join(figures))


def _reliability(data: SingleTaskReportData) -> Section | None:
    """Compare probabilities, quantiles, intervals, distributions and means with the true values."""
    content = ""
    if data.probabilities is not None or data.model.objective.quantile_levels:
        caption = "Predicted and observed frequencies, which are equal on the diagonal."
        draw = _calibration(data)
        content += _draw_figure(data, "calibration", "Calibration", caption, draw, (4.6, 4.4))
    if "intervals" in data.model.metadata:
        draw = _draw(
            CoverageDisplay.from_estimator, data.estimator, data.X, data.y, offset=data.offset
        )
        caption = (
            "The share of rows inside their interval, with two standard errors; dashed: the "
            "requested coverage."
        )
        content += _draw_figure(data, "coverage", "Coverage of intervals", caption, draw)
    if data.distribution is not None:
        content += _distributions(data)
    if data.is_mean_regression:
        content += _predictions(data)
    return Section("truth", "Calibration and predictions", content) if content else None


def _calibration(data: SingleTaskReportData) -> Callable[[object], object]:
    if data.probabilities is None:
        return _draw(
            CalibrationDisplay.from_estimator, data.estimator, data.X, data.y, offset=data.offset
        )
    truth, probabilities, names = predict_probabilities(data.estimator, data.X, data.y, data.offset)
    if len(names) > _MAX_CURVES:  # one curve for all
        truth, probabilities, names = truth.reshape(-1, 1), probabilities.reshape(-1, 1), ["all"]
    return _draw(CalibrationDisplay.from_predictions, truth, probabilities, names)


def _distributions(data: SingleTaskReportData) -> str:
    """Show the calibration and the sharpness of predicted distributions."""
    distribution, figures, rows = data.distribution, "", []
    assert distribution is not None
    y = data.y.reshape(distribution.shape)
    for k, name in enumerate(data.target_names):
        known = ~np.isnan(y if y.ndim == 1 else y[:, k])
        if not known.any():
            continue
        predicted, truth = (distribution, y) if y.ndim == 1 else (distribution[:, k], y[:, k])
        predicted, truth = predicted[known], truth[known]
        for interval in compute_coverage_table(truth, predicted):
            share = f"{interval.share:.1%} ± {2 * interval.error:.1%}"
            rows.append([name, f"{interval.coverage:.0%}", share, _format(interval.width)])
        if k < _MAX_TARGET_FIGURES:
            draw = _draw(_draw_pit_histogram, compute_pit_histogram(truth, predicted))
            caption = (
                f"{name}: histogram of the probability integral transform. It is flat for "
                "calibrated distributions, high at both ends if they are too narrow, and high in "
                "the middle if they are too wide."
            )
            figures += _draw_figure(data, f"pit{k}", f"PIT histogram of {name}", caption, draw)
    header = ["", "interval", "coverage ± two standard errors", "mean width"]
    return figures + _long_table(header, rows, "rows")


def _draw_pit_histogram(heights: np.ndarray, ax: Axes) -> None:
    n_bins = len(heights)
    ax.bar((np.arange(n_bins) + 0.5) / n_bins, heights, width=0.94 / n_bins)
    ax.axhline(1.0, **REFERENCE_LINE)
    ax.set(xlabel="probability integral transform", ylabel="relative frequency", xlim=(0, 1))


def _predictions(data: SingleTaskReportData) -> str:
    """Draw predictions against the true values of the first targets."""
    y, figures = data.y.reshape(len(data.y), -1), []
    predicted = data.predicted.reshape(y.shape)
    for k, name in enumerate(data.target_names[:_MAX_TARGET_FIGURES]):
        draw = _draw(_draw_predictions, y[:, k], predicted[:, k], name)
        caption = (
            f"{name}: predicted against true values; predictions on the dashed line are exact."
        )
        label = f"Predictions of {name}"
        figures.append(_draw_figure(data, f"truth{k}", label, caption, draw, (4.6, 3.6)))
    rest = _note_rest(_MAX_TARGET_FIGURES, len(data.target_names), "targets")
    return "".join(figures) + rest


def _draw_predictions(y: np.ndarray, predicted: np.ndarray, name: str, ax: Axes) -> None:
    known = np.flatnonzero(~np.isnan(y))
    ends = [float(y[known].min()), float(y[known].max())] if known.size else [0.0, 1.0]
    shown = known[:_MAX_POINTS]
    ax.scatter(y[shown], predicted[shown], s=5, alpha=0.5, linewidths=0, rasterized=True)
    ax.plot(ends, ends, **REFERENCE_LINE)
    ax.set(xlabel=f"true {name}", ylabel="predicted")


# --- explanation ----------------------------------------------------------------------------------


def _features(data: ReportData) -> Section:
    """Show importances by the splits and by SHAP values."""
    names, kind = data.model.input_names, data.importance_kind
    display = ImportanceDisplay(data.split_importance, names, kind=kind, max_features=_MAX_FEATURES)
    label = f"Importance by {kind}"
    content = _draw_figure(data, "gain", label, f"{label}, from training.", display.plot)
    if data.shap_values is None:
        content += render_note(
            "SHAP values were not computed: there are too many, or the model was "
            "saved without row counts."
        )
        return Section("features", "Features", content)
    mean = data.mean_abs_shap if len(data.mean_abs_shap) > 1 else data.mean_abs_shap[0]
    display = ImportanceDisplay(mean, names, data.output_names, "shap", _MAX_FEATURES)
    label = "Importance by SHAP values"
    caption = "Mean absolute SHAP values of these rows, in the unit of raw scores."
    content += _draw_figure(data, "shap", label, caption, display.plot, (6.4, 4.2))
    return Section("features", "Features", content + _shap_summaries(data))


def _shap_summaries(data: ReportData) -> str:
    """Draw the SHAP values of each row for the outputs where they are largest."""
    figures = ""
    for k in np.argsort(-data.mean_abs_shap.mean(axis=1), kind="stable")[:2].tolist():
        name = data.output_names[k] if data.model.n_outputs > 1 else "the score"
        draw = _draw(_draw_shap_summary, data, k)
        label = f"SHAP values of {name}"
        caption = (
            f"{label}, a point for each of {len(data.explained_rows)} rows: blue for low and red "
            "for high feature values, grey for missing values and categories."
        )
        figures += _draw_figure(data, f"summary{k}", label, caption, draw, (6.4, 4.2))
    return figures


def _draw_shap_summary(data: ReportData, output: int, ax: Axes) -> None:
    values, mapper = data.shap_values, data.model.mapper
    assert values is not None
    codes = data.binned_rows.codes[:, data.explained_rows]
    top = np.argsort(-data.mean_abs_shap[output], kind="stable")[:10]
    for position, f in enumerate(top.tolist()):
        x = values[:, f, output]
        colour = np.full((len(x), 4), (0.55, 0.55, 0.55, 0.8))
        if f < len(mapper.n_bins_) and not mapper.is_categorical_[f]:
            present = codes[f] != MISSING_CODE
            colour[present] = _blend(codes[f][present] / max(1, int(mapper.n_bins_[f]) - 1))
        ax.scatter(x, position + _jitter(x), c=colour, s=6, linewidths=0, rasterized=True)
    ax.axvline(0, color="grey", linewidth=0.8)
    ax.set_yticks(range(len(top)), [data.model.input_names[f] for f in top])
    ax.set(xlabel="SHAP value")
    ax.invert_yaxis()


def _blend(share: np.ndarray) -> np.ndarray:
    """Return colours from blue to red, which are visible on light and dark pages."""
    low, high = np.array([0.12, 0.47, 0.9, 0.9]), np.array([0.9, 0.15, 0.25, 0.9])
    return low + share[:, None] * (high - low)


def _jitter(x: np.ndarray) -> np.ndarray:
    """Return offsets that separate points with similar values, without randomness."""
    offsets = np.zeros(len(x))
    span = float(np.ptp(x)) or 1.0
    bins = np.floor((x - x.min()) / span * 60).astype(int)
    for bin in np.unique(bins):
        rows = np.flatnonzero(bins == bin)
        offsets[rows] = (np.arange(len(rows)) - (len(rows) - 1) / 2) * min(0.06, 0.7 / len(rows))
    return offsets


def _trees(data: ReportData) -> Section | None:
    """Draw the first tree, and one from the middle."""
    model, figures = data.model, ""
    for number in dict.fromkeys((0, model.n_trees // 2)) if model.n_trees else ():
        if model.trees[number].structure.n_leaves > _MAX_LEAVES:
            continue
        display = TreeDisplay(model, number)
        width = max(6.0, 0.9 * (display.position[:, 0].max() + 1))
        size = (width, 1.1 * (2 - display.position[:, 1].min()))
        figures += render_figure(
            render_svg(f"tree{number}", f"Tree {number}", display.plot, size),
            "Each leaf is a strip with a cell for each output: red for positive and blue "
            "for negative values.",
            full=True,
        )
    return Section("trees", "Trees", figures) if figures else None


# --- several tasks --------------------------------------------------------------------------------


def _task_scores(data: MultiTaskReportData) -> Section:
    """Show the D2 score of each task."""
    rows = [
        [name, _objective_name(task.model), f"{len(task.y):,}", _format(score)]
        for (name, task), score in zip(data.tasks.items(), data.d2_scores.values(), strict=True)
    ]
    note = render_note(
        "D2: the fraction of the error of a constant baseline that is removed; 1 is perfect."
    )
    if len(data.tasks) > _MAX_TASKS:
        note += render_note(f"The first {_MAX_TASKS} tasks have a section of their own.")
    header = ["task", "objective", "rows", "D2"]
    return Section("scores", "Scores", _long_table(header, rows, "tasks") + note)


def _task(name: str, data: SingleTaskReportData) -> Section:
    """Make the section of one task."""
    parts = [_scores(data), _outputs(data), _reliability(data)]
    if data.estimator.evals_result_:
        parts.insert(1, _curves(data))
    content = _targets(data) + "".join(part.content for part in parts if part is not None)
    return Section(data.prefix.rstrip("-"), name, content)
