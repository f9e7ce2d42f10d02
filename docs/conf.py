"""Configure Sphinx: pages of docs/, the gallery from examples/, the reference from docstrings and
declarations.

`scripts/docs` builds the site.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent / "_ext"))

from api import EXTRAS
from thumbnails import PICTURES, DrawFigures

ROOT = Path(__file__).resolve().parents[1]
STAGED = ROOT / "build" / "docs" / "examples"  # the gallery reads them from here, with titles

project = "Polyleaf"
author = "The maintainers of Polyleaf"
copyright = "the authors of Polyleaf, Apache-2.0"
version = release = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"][
    "version"
]

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx_gallery.gen_gallery",
    "generated",  # docs/_ext
    "mathml",
    "pictures",
]
exclude_patterns = ["gallery/*.ipynb", "gallery/*.zip"]
default_role = "literal"
language = "en"

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
# Pages of figures begin their tables at the level that fits where they are read in the repository.
suppress_warnings = ["myst.header"]

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the docstrings say them, with shapes
autodoc_mock_imports = EXTRAS
numpydoc_show_class_members = False

html_math_renderer = "mathml"
html_theme = "pydata_sphinx_theme"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_search_scorer = str(ROOT / "docs" / "_ext" / "scorer.js")
html_title = f"Polyleaf {version}"
html_show_sphinx = False
html_copy_source = False
html_show_sourcelink = False
html_sidebars = {"index": [], "faq": [], "whats_new": []}
html_theme_options = {
    "header_links_before_dropdown": 6,
    "navbar_end": ["theme-switcher"],
    "secondary_sidebar_items": ["page-toc"],
    "show_toc_level": 2,
    "footer_start": ["copyright"],
    "footer_end": [],
    "show_prev_next": True,
}

sphinx_gallery_conf = {
    "examples_dirs": str(STAGED),
    "gallery_dirs": "gallery",
    "filename_pattern": r"\.py$",
    "image_scrapers": (DrawFigures(),),
    "reset_modules": (),
    "download_all_examples": False,
    "show_signature": False,
    "remove_config_comments": True,
    "abort_on_example_error": True,
    "min_reported_time": 1e9,
    "show_memory": False,
    "write_computation_times": False,
    "within_subsection_order": "FileNameSortKey",
    "copyfile_regex": "",
}


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("autodoc-skip-member", skip_what_is_not_ours)


def skip_what_is_not_ours(
    app: Any, what: str, name: str, member: Any, skip: bool, options: Any
) -> bool | None:
    """Skip the members that scikit-learn gives every estimator (get_params, ...)."""
    module = getattr(member, "__module__", None) or ""
    return True if module.startswith("sklearn.") else None


def stage_examples() -> None:
    """Write the examples with a heading: their docstring up to the first colon or full stop."""
    STAGED.mkdir(parents=True, exist_ok=True)
    kept = {"README.rst"}
    (STAGED / "README.rst").write_text(
        "Gallery\n=======\n\nOne script for most methods, run when this page was built.\n", "utf-8"
    )
    for path in sorted((ROOT / "examples").glob("*.py")):
        docstring, rest = path.read_text("utf-8").removeprefix('"""').split('"""', 1)
        first = docstring.partition("\n")[0].rstrip(".")
        title, _, more = first.partition(": ")
        sentence = f"{more[:1].upper()}{more[1:]}." if more else ""
        body = "\n".join([title, "=" * len(title), "", sentence, *docstring.split("\n")[1:]])
        rest = rest.replace("\n    main(", "\n    figures = main(")  # which its thumbnail shows
        if path.stem in PICTURES:
            rest += f"\n# sphinx_gallery_thumbnail_path = 'images/{PICTURES[path.stem]}'\n"
        staged, text = STAGED / path.name, f'"""\n{body}"""{rest}'
        kept.add(path.name)
        if (
            not staged.is_file() or staged.read_text("utf-8") != text
        ):  # unchanged ones are not run again
            staged.write_text(text, "utf-8")
    for path in STAGED.iterdir():
        if path.is_file() and path.name not in kept:
            path.unlink()


stage_examples()
