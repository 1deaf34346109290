"""Settings of the documentation: ``python -m sphinx -W -n docs site``. Every warning is an error there."""

from __future__ import annotations

import re
import shutil
import textwrap
from pathlib import Path
from typing import Any

from sphinx.ext.napoleon import Config
from sphinx.ext.napoleon.docstring import GoogleDocstring

import optpy as op

ROOT = Path(__file__).resolve().parents[1]

project = "optpy"
author = copyright = "the optpy authors"
version = release = op.__version__

extensions = ["myst_nb", "sphinx.ext.autodoc"]
exclude_patterns = ["jupyter_execute", ".jupyter_cache"]
suppress_warnings = ["config.cache"]
nitpicky = True

# -- pages: MyST, whose notebooks are run; an error in one is an error of the build -----------------------------------
myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3
nb_execution_mode = "cache"  # by what a page says; a change of optpy itself needs `rm -r .jupyter_cache`
nb_execution_raise_on_error = True
nb_execution_show_tb = True
nb_execution_timeout = 300
nb_merge_streams = True

# -- the reference -----------------------------------------------------------------------------------------------------
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the docstrings say what each argument is, and its shape
default_role = "code"
# Other libraries' names have no page here.
nitpick_ignore_regex = [("py:.*", r"(?!op\.|optpy\.).*")]

# -- HTML: nothing is fetched from elsewhere ---------------------------------------------------------------------------
html_theme = "furo"
html_title = f"optpy {release}"
html_show_sphinx = False
html_copy_source = False
html_static_path = ["_static"]
html_css_files = ["wide.css"]


_ENTRIES = re.compile(r"(?:\w+(?:, \w+)*: .*\n(?:    .*\n)*)+")
"""Lines ``name, name: text``; what goes on is indented."""

_UNDER_A_HEAD = re.compile(r"(?!(?:Args|Attributes|Returns|Raises):\n)((?:\S.*\n)*\S.*:\n)((?:    .*\n)+)")


def _as_reference(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Docstrings as reStructuredText: what is explained name by name is a list; outside of code stars are stars."""
    first, *others = "\n".join(lines).split("\n\n")
    text = "\n\n".join([first, *map(_listed, others)])
    parts = re.split(r"(``[^`]+``|`[^`]+`)", text)
    parts[::2] = [re.sub(r"([*|])", r"\\\1", part) for part in parts[::2]]
    settings: Any = Config(napoleon_use_ivar=True)  # not Sphinx's own class of that name, which is what is declared
    lines[:] = GoogleDocstring("".join(parts), settings).lines()


def _listed(paragraph: str) -> str:
    """A paragraph of entries as a list; other paragraphs as they are."""
    text = paragraph.strip("\n") + "\n"
    if under := _UNDER_A_HEAD.fullmatch(text):
        return f"{under[1]}\n{_listed(textwrap.dedent(under[2]))}"
    if not _ENTRIES.fullmatch(text):
        return paragraph
    points = re.sub(r"^    ", "  ", text, flags=re.MULTILINE)
    return re.sub(r"^(\w+(?:, \w+)*):", r"- ``\1``:", points, flags=re.MULTILINE)


def setup(app: Any) -> None:
    """Take the notebooks of examples/ among the pages, and read docstrings."""
    copies = Path(app.srcdir) / "examples"
    copies.mkdir(exist_ok=True)
    for notebook in (ROOT / "examples").glob("*.ipynb"):
        shutil.copy(notebook, copies)
    app.connect("autodoc-process-docstring", _as_reference)
