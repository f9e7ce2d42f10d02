"""The documentation site: its contents, examples of public names, no external resources."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from support import ROOT
from support.public_names import EXTRA, MODULES, PAGES, public_names

import polyleaf
from polyleaf.metrics import metric_names
from polyleaf.objectives import objective_names
from polyleaf.settings.aliases import read_foreign_names
from polyleaf.settings.param_spec import get_param_specs

DOCS = ROOT / "docs"
GENERATED = {"gallery"}
SITE_NEEDS = ("sphinx", "myst_parser", "numpydoc", "pydata_sphinx_theme", "sphinx_gallery", "jax")


def sections_by_heading(page: Path) -> dict[str, str]:
    """Return the text of each section of the second level."""
    parts = page.read_text("utf-8").split("\n## ")[1:]
    found = {part.partition("\n")[0]: part for part in parts}
    assert len(found) == len(parts), f"{page.name} has two sections of one name"
    return found


def pages() -> list[Path]:
    return [
        path
        for path in sorted(DOCS.rglob("*.md"))
        if path.relative_to(DOCS).parts[0] not in GENERATED
    ]


# --- the pages ---


@pytest.mark.parametrize("module", MODULES)
def test_each_public_name_has_an_example(module):
    if module in EXTRA:
        pytest.importorskip(EXTRA[module], reason="an extra is not installed")
    (page,) = [page for page, modules in PAGES.items() if module in modules]
    sections = sections_by_heading(DOCS / "reference" / f"{page}.md")
    names = public_names(module)
    assert names and set(names) <= set(sections)
    for name in names:
        directive, _, rest = sections[name].partition("```{eval-rst}\n")[2].partition("\n```\n")
        assert re.match(rf"\.\. auto\w+:: {re.escape(module)}\.{name}(\n|$)", directive), name
        assert "```python\n" in rest, f"{module}.{name} has no example"


@pytest.mark.parametrize("page", PAGES)
def test_each_section_is_about_a_public_name(page):
    for module in PAGES[page]:
        if module in EXTRA:
            pytest.importorskip(EXTRA[module], reason="an extra is not installed")
    names = {name for module in PAGES[page] for name in public_names(module)}
    assert set(sections_by_heading(DOCS / "reference" / f"{page}.md")) == names


def test_each_public_module_has_a_page():
    modules = {
        getattr(polyleaf, name).__name__
        for name in polyleaf.__all__
        if inspect.ismodule(getattr(polyleaf, name))
    }
    assert {name for name in modules if not any(m.startswith(name) for m in MODULES)} == set()
    assert {page.stem for page in (DOCS / "reference").glob("*.md")} == {
        "index",
        "capabilities",
        "model_format",
        "parameters",
        *PAGES,
    }


def test_generated_text_is_current():
    """The pages are whole without a build: run docs/_ext/generated.py after a change."""
    for module in ("numpydoc", "sphinx"):
        pytest.importorskip(module)
    command = [sys.executable, str(DOCS / "_ext" / "generated.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for page in pages():  # nothing else has to be built to be read
        text = re.sub(r"<!-- site\n.*?-->", "", page.read_text("utf-8"), flags=re.DOTALL)
        assert "```{" not in text and "{py:" not in text, page.name


def test_generated_tables_have_all_names():
    pytest.importorskip("numpydoc")
    pytest.importorskip("sphinx")
    spec = importlib.util.spec_from_file_location("generated", DOCS / "_ext" / "generated.py")
    generated = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generated)
    marked = [generated.MARKER.findall(page.read_text("utf-8")) for page in pages()]
    assert {name for names in marked for name in names} == generated.TABLES.keys()

    lines = list(generated.make_parameters())
    for spec, estimators in generated.find_parameters():
        assert any(line.startswith(f"### {spec.name}") for line in lines), spec.name
        assert estimators
    text = "\n".join([*lines, *generated.make_method_arguments()])
    for name, others in read_foreign_names("parameters").items():
        assert f"`{name}`" in text or f"### {name}" in text, name
        assert all(f"`{other}`" in text for other in others.split()), name
    assert all(
        f"[`{name}`](#" in "\n".join(generated.make_objectives()) for name in objective_names()
    )
    assert all(f"`{name}`" in "\n".join(generated.make_metrics()) for name in metric_names())


def test_readme_is_short():
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 120


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_links_are_valid(page):
    """Links of the other pages are checked by Sphinx."""
    text = (ROOT / page).read_text("utf-8")
    targets = re.findall(r"(?:\]\(|src(?:set)?=\")([^)#\"\s]+)", text)
    assert [each for each in targets if "://" not in each and not (ROOT / each).exists()] == []


def test_pictures_have_both_themes_and_are_used():
    names = {path.name for path in (DOCS / "images").iterdir()}
    light = {name for name in names if "-light." in name}
    assert names == light | {name.replace("-light.", "-dark.") for name in light}
    used = {
        Path(target).name
        for page in [*pages(), ROOT / "README.md"]
        for target in re.findall(r"images/([\w.-]+)", page.read_text("utf-8"))
    }
    assert light <= used
    drawn = (ROOT / "scripts" / "pictures.py").read_text("utf-8")
    for name in light:
        function = name.partition("-light.")[0].replace("-", "_")
        assert f"def draw_{function}(" in drawn or function == "report", name


# --- the built site ---


FETCHED = {
    "link": "href",
    "script": "src",
    "img": "src",
    "source": "src",
    "iframe": "src",
    "video": "src",
}


class Requests(HTMLParser):
    """Collect the resources that a browser fetches for a page, without hyperlinks."""

    def __init__(self):
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        if tag in FETCHED and values.get(FETCHED[tag]):
            self.found.append(values[FETCHED[tag]])


@pytest.fixture(scope="module")
def site():
    for name in SITE_NEEDS:
        if importlib.util.find_spec(name) is None:
            pytest.skip(f'the site needs pip install ".[docs]": {name} is missing')
    program = Path(sys.executable).parent
    environment = os.environ | {"PATH": f"{program}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        [ROOT / "scripts" / "docs"], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return ROOT / "build" / "docs" / "html"


@pytest.mark.full
def test_pages_load_no_external_resources(site):
    html = sorted(site.rglob("*.html"))
    assert len(html) > 50
    for path in html:
        parser = Requests()
        parser.feed(path.read_text("utf-8"))
        assert not [url for url in parser.found if re.match(r"(\w+:)?//", url)], path.name


@pytest.mark.full
def test_style_sheets_load_no_external_resources(site):
    for path in site.rglob("*.css"):
        assert not re.search(r"(url\(|@import)\s*['\"]?(https?:)?//", path.read_text("utf-8")), (
            path.name
        )


@pytest.mark.full
def test_examples_of_the_gallery_have_thumbnails(site):
    pictures = {path.name.partition("_thumb.")[0] for path in site.rglob("*_thumb.*")}
    examples = (ROOT / "examples").glob("*.py")
    assert pictures == {f"sphx_glr_{path.stem}" for path in examples}


@pytest.fixture(scope="module")
def search_index(site):
    text = (site / "searchindex.js").read_text("utf-8")
    return json.loads(text.removeprefix("Search.setIndex(").rstrip().rstrip(")"))


@pytest.mark.full
def test_search_finds_parameters_and_titles(search_index):
    parameters = {
        spec.name
        for name in dir(polyleaf)
        if name.startswith("Polyleaf")
        for spec in get_param_specs(getattr(polyleaf, name))
    }
    page = search_index["docnames"].index("reference/parameters")
    titles = search_index["alltitles"]
    assert len(parameters) > 60
    assert not [name for name in parameters if page not in dict(titles.get(name, []))]
    found = {title.replace("’", "'") for title in search_index["titles"]}
    for path in pages():
        title = re.search(r"(?m)^# (.+)$", path.read_text("utf-8"))
        if title and path.name != "results.md":  # others include a file with a title
            assert title[1].replace("`", "") in found, path.name


@pytest.mark.full
def test_search_finds_names_in_other_libraries(site, search_index):
    page = search_index["docnames"].index("reference/parameters")
    text = (site / "reference" / "parameters.html").read_text("utf-8")
    for name in ("num_leaves", "min_sum_hessian_in_leaf", "colsample_bylevel", "base_margin"):
        assert name in text, name
    for term in ("eta", "shrinkag", "bagging_fract", "num_leav"):
        documents = search_index["terms"][term]
        assert page in (documents if isinstance(documents, list) else [documents]), term


@pytest.mark.full
def test_search_excludes_the_page_of_results(search_index):
    page = search_index["docnames"].index("benchmarks/results")
    assert not [t for t, found in search_index["terms"].items() if found == page]
