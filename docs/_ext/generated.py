"""Generated text of the pages: tables, the API and lists of pages; and a Sphinx extension.

The text stands in the pages, so that they are whole in the repository: run this file after a change
of declarations or docstrings. It lies between comments: `<!-- generated: parameters -->`, or
`<!-- site`, with the directive that the site shows instead, and `<!-- end -->`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import api

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
DOCS = Path(__file__).resolve().parents[1]
_TEXT = r"(?:(?!<!-- end -->).)*"
MARKER = re.compile(rf"<!-- generated: (\w+) -->\n{_TEXT}<!-- end -->", re.DOTALL)
# Directives of the site, which replace the generated text after them.
SITE = re.compile(rf"<!-- site\n(.*?)\n-->\n{_TEXT}<!-- end -->", re.DOTALL)


def setup(app: Any) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("source-read", lambda app, name, source: _select_for_site(source))
    return {"parallel_read_safe": True}


def _select_for_site(source: list[str]) -> None:
    source[0] = SITE.sub(lambda found: found[1], source[0])


def expand(text: str, page: Path) -> str:
    """Return the text of a page with what is generated."""

    def expand_site(found: re.Match[str]) -> str:
        directive = found[1]
        if directive.startswith("```{eval-rst}"):
            lines = api.describe(directive, page)
        elif directive.startswith("```{toctree}"):
            lines = _list_pages(directive, page)
        else:
            return found[0]
        generated = re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip("\n")
        return f"<!-- site\n{directive}\n-->\n\n{generated}\n\n<!-- end -->"

    def expand_table(found: re.Match[str]) -> str:
        lines = "\n".join(TABLES[found[1]]()).strip("\n")
        return f"<!-- generated: {found[1]} -->\n\n{lines}\n\n<!-- end -->"

    return SITE.sub(expand_site, MARKER.sub(expand_table, text))


def find_pages() -> list[Path]:
    """Return the pages with generated text."""
    pages = (page for page in sorted(DOCS.rglob("*.md")) if "gallery" not in page.parts)
    return [page for page in pages if "<!-- end -->" in page.read_text("utf-8")]


def write_pages(writes: bool = True) -> list[str]:
    """Write what is generated into the pages, and return the pages that change."""
    changed = []
    for page in find_pages():
        old = page.read_text("utf-8")
        new = expand(old, page)
        if new != old:
            changed.append(page.relative_to(DOCS).as_posix())
            if writes:
                page.write_text(new, "utf-8")
    return changed


def _list_pages(directive: str, page: Path) -> Iterator[str]:
    """Yield the pages of a table of contents as links."""
    for line in directive.splitlines()[1:-1]:
        if line.startswith(":caption:"):
            yield f"**{line.removeprefix(':caption:').strip()}**\n"
        elif line and not line.startswith(":"):
            path = page.parent / f"{line}.md"
            if path.is_file():  # the gallery is made when the site is built
                yield f"- [{_get_title(path)}]({line}.md)"


def _get_title(path: Path) -> str:
    title = re.search(r"^# (.+)", path.read_text("utf-8"), re.MULTILINE)
    return path.stem.capitalize() if title is None else title[1]


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
    default = spec.none or f"`{spec.shown_default}`"
    yield f"### {title}\n"
    yield f"{_escape(spec.kind)}; default {default}\n"
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
    text = api.resolve_roles(text, DOCS / "reference" / "parameters.md")
    linked: set[str] = set()

    def replace(found: re.Match[str]) -> str:
        name = found[1]
        if name not in names or name in linked:
            return found[0]
        linked.add(name)
        return f"[`{name}`](#{name})"

    return re.sub(r"(?<!\[)`(\w+)`", replace, text)


def make_common_parameters() -> Iterator[str]:
    """Yield a table of the most common parameters."""
    yield "| Parameter | Meaning | Default |"
    yield "|---|---|---|"
    for spec in get_param_specs(PolyleafRegressor):
        if spec.common:
            default = spec.none or f"`{spec.shown_default}`"
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
    code = (
        r'\w+=(?:"\w+"|\d*\.\d+|\w+)|[\w.]*_[\w.]*(?:\([^)]*\))?|Dataset\([^)]*\)|polyleaf\.[\w.]+'
    )
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
            f"| [`{name}`](#{cls.__name__.lower()}) | "
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


if __name__ == "__main__":
    is_check = "--check" in sys.argv
    changed = write_pages(writes=not is_check)
    if is_check and changed:
        sys.exit(f"Run docs/_ext/generated.py: {', '.join(changed)} must be written again.")
