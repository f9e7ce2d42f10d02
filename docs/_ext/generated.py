"""Sphinx extension: tables of the reference, generated from the declarations in the package.

A page has a comment such as `<!-- generated: parameters -->` where the table stands.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from polyleaf import (
    PolyleafClassifier,
    PolyleafClassifierCV,
    PolyleafMultiTask,
    PolyleafRanker,
    PolyleafRankerCV,
    PolyleafRegressor,
    PolyleafRegressorCV,
)
from polyleaf.metrics import default_metric, get_metric, metric_names
from polyleaf.metrics.metric import METRIC_ALIASES
from polyleaf.objectives import distribution_names, objective_class, objective_names
from polyleaf.runtime.capabilities import FEATURES, PLACES, WITHIN
from polyleaf.settings.aliases import read_foreign_names
from polyleaf.settings.param_spec import ParamSpec, get_param_specs

ESTIMATORS = (
    PolyleafRegressor,
    PolyleafClassifier,
    PolyleafMultiTask,
    PolyleafRanker,
    PolyleafRegressorCV,
    PolyleafClassifierCV,
    PolyleafRankerCV,
)
MARKER = re.compile(r"<!-- generated: (\w+) -->")


def setup(app: Any) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("env-get-outdated", _find_pages)
    app.connect("source-read", _expand_markers)
    return {"parallel_read_safe": True}


def _find_pages(app: Any, env: Any, *changed: Any) -> list[str]:
    """Return the pages with generated tables, which are read anew in every build."""
    pages = {name: Path(env.doc2path(name)) for name in env.found_docs}
    return [name for name, path in pages.items() if MARKER.search(path.read_text("utf-8"))]


def _expand_markers(app: Any, docname: str, source: list[str]) -> None:
    source[0] = MARKER.sub(lambda found: "\n".join(TABLES[found[1]]()), source[0])


# --- parameters -----------------------------------------------------------------------------------


def find_parameters() -> list[tuple[ParamSpec, list[str]]]:
    """Return each different declaration of a parameter with the estimators that have it."""
    found: dict[tuple[str, str], tuple[ParamSpec, list[str]]] = {}
    for estimator in ESTIMATORS:
        for spec in get_param_specs(estimator):
            _, names = found.setdefault((spec.name, spec.text), (spec, []))
            names.append(estimator.__name__)
    return sorted(found.values(), key=lambda item: -len(item[1]))  # shared ones first


def make_parameters() -> Iterator[str]:
    """Yield the sections of all parameters, by topic, in MyST Markdown."""
    parameters = find_parameters()
    names = {spec.name for spec, _ in parameters}
    plain: set[str] = set()
    topics = list(dict.fromkeys(spec.topic for spec, _ in parameters))
    for topic in topics:
        yield f"\n## {topic}\n"
        for spec, estimators in parameters:
            if spec.topic == topic:
                title = f"{spec.name} ({topic.lower()})" if spec.name in plain else spec.name
                plain.add(spec.name)
                yield from _make_section(spec, title, estimators, names)


def _make_section(
    spec: ParamSpec, title: str, estimators: list[str], names: set[str]
) -> Iterator[str]:
    default = json.dumps(spec.default) if isinstance(spec.default, str) else repr(spec.default)
    yield f"### {title}\n"
    kind = re.sub(r"\d{10,}\]", "inf)", spec.kind)  # limits of the core's integers
    yield f"{_escape(kind)}; default `{default}`\n"
    yield f"{_link(spec.text, names - {spec.name})}\n"
    facts = []
    if len(estimators) < len(ESTIMATORS):
        facts.append(f"Estimators: {_join(estimators)}.")
    others = read_foreign_names("parameters").get(spec.name)
    if others:
        facts.append(f"Other libraries: {_join(others.split())}.")
    if facts:
        yield f"{' '.join(facts)}\n"


def _escape(text: str) -> str:
    return re.sub(r"([\[\]{}*_<>])", r"\\\1", text)


def _join(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _link(text: str, names: set[str]) -> str:
    """Return a text with roles in MyST, and links from the first mention of each parameter."""
    text = re.sub(r":(class|mod|func):`([^`]+)`", r"{py:\1}`\2`", text)
    linked: set[str] = set()

    def replace(found: re.Match[str]) -> str:
        name = found[1]
        if name not in names or name in linked:
            return found[0]
        linked.add(name)
        return f"[`{name}`](#{name})"

    return re.sub(r"(?<!\})`(\w+)`", replace, text)


def make_common_parameters() -> Iterator[str]:
    """Yield a table of the most common parameters."""
    yield "| Parameter | Meaning | Default |"
    yield "|---|---|---|"
    for spec in get_param_specs(PolyleafRegressor):
        if spec.common:
            default = f"`{spec.default!r}`".replace("'", '"')
            yield f"| [`{spec.name}`](#{spec.name}) | {spec.summary} | {default} |"


def make_method_arguments() -> Iterator[str]:
    """Yield a table of arguments of methods and their names in other libraries."""
    parameters = {spec.name for spec, _ in find_parameters()}
    yield "| Argument | Other libraries |"
    yield "|---|---|"
    for name, others in read_foreign_names("parameters").items():
        if name not in parameters:
            yield f"| `{name}` | {_join(others.split())} |"


def make_foreign_parameters() -> Iterator[str]:
    """Yield a table of parameters of other libraries without an equivalent."""
    known = {spec.name for spec, _ in find_parameters()}
    known.update(*(names.split() for names in read_foreign_names("parameters").values()))
    by_hint: dict[str, list[str]] = {}
    for name, hint in read_foreign_names("parameters_without_equivalent").items():
        if name not in known:
            by_hint.setdefault(_mark_code(hint), []).append(name)
    yield "| Other libraries | In Polyleaf |"
    yield "|---|---|"
    for hint, names in sorted(by_hint.items(), key=lambda item: item[1]):
        yield f"| {_join(names)} | {hint} |"


def _mark_code(text: str) -> str:
    """Put identifiers and assignments in backquotes."""
    code = r'\w+=(?:"\w+"|\w+)|[\w.]*_[\w.]*(?:\([^)]*\))?|Dataset\([^)]*\)|polyleaf\.[\w.]+'
    return re.sub(code, r"`\g<0>`", text)


# --- objectives and metrics -----------------------------------------------------------------------


def make_objectives() -> Iterator[str]:
    """Yield a table of the objectives, their default metrics and names in other libraries."""
    yield "| Name | Targets | Metric | Other names |"
    yield "|---|---|---|---|"
    for name in sorted(objective_names(), key=distribution_names().__contains__):
        cls = objective_class(name)
        objective = cls(n_classes=3) if "n_classes" in cls.__dataclass_fields__ else cls()
        yield (
            f"| {{py:class}}`{name} <polyleaf.objectives.{cls.__name__}>` | "
            f"{', '.join(cls.target_kinds)} | `{default_metric(objective).name}` | "
            f"{_join(cls.aliases)} |"
        )


def make_metrics() -> Iterator[str]:
    """Yield a table of the metrics and their names in other libraries."""
    yield "| Name | Better | Computed from | Other names |"
    yield "|---|---|---|---|"
    words = {"raw": "raw scores", "prediction": "predictions", "proba": "probabilities"}
    for name in metric_names():
        metric = get_metric(name)
        others = _join(alias for alias, own in METRIC_ALIASES.items() if own == name)
        better = "larger" if metric.greater_is_better else "smaller"
        yield f"| `{name}` | {better} | {words[metric.prediction_type]} | {others} |"


# --- what works with what -------------------------------------------------------------------------


def _get_refusal(feature: str, place: str) -> str | None:
    refused = FEATURES[feature].refused
    return refused.get(place) or refused.get(WITHIN.get(place, ""))


def make_capabilities() -> Iterator[str]:
    """Yield a table of the features that some place refuses."""
    yield f"| Feature | {' | '.join(PLACES.values())} |"
    yield f"|---|{':-:|' * len(PLACES)}"
    for name, feature in FEATURES.items():
        if feature.refused.keys() & PLACES.keys():
            cells = ("–" if _get_refusal(name, place) else "✓" for place in PLACES)
            yield f"| {feature.title} | {' | '.join(cells)} |"


def make_refusals() -> Iterator[str]:
    """Yield the features that others exclude, and all sentences."""
    for feature in FEATURES.values():
        if feature.refused:
            yield f"\n{feature.title}\n"
            code = re.search("`(.*?)`", feature.title)
            this = feature.title if code is None else code[1]
            for column, sentence in feature.refused.items():
                other = PLACES[column] if column in PLACES else FEATURES[column].title
                text = re.sub(r"\{[^}]*\}", "…", sentence.replace("{this}", this))
                yield f"- {other}: {_escape(text)}"


TABLES: dict[str, Callable[[], Iterator[str]]] = {
    "parameters": make_parameters,
    "common_parameters": make_common_parameters,
    "method_arguments": make_method_arguments,
    "foreign_parameters": make_foreign_parameters,
    "objectives": make_objectives,
    "metrics": make_metrics,
    "capabilities": make_capabilities,
    "refusals": make_refusals,
}
