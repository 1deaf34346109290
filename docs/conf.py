"""Settings of the documentation: ``python -m sphinx -W -n docs site``. Every warning is an error there."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

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
nb_execution_mode = "cache"
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


def _as_reference(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Docstrings as reStructuredText: stars and bars outside of code are themselves."""
    text = "\n".join(lines)
    parts = re.split(r"(``[^`]+``|`[^`]+`)", text)
    parts[::2] = [re.sub(r"([*|])", r"\\\1", part) for part in parts[::2]]
    lines[:] = "".join(parts).split("\n")


def setup(app: Any) -> None:
    """Take the notebooks of examples/ among the pages, and read docstrings."""
    copies = Path(app.srcdir) / "examples"
    copies.mkdir(exist_ok=True)
    for notebook in (ROOT / "examples").glob("*.ipynb"):
        shutil.copy(notebook, copies)
    app.connect("autodoc-process-docstring", _as_reference)
