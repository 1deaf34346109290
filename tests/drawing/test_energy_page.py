"""The page about an energy."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import optpy as op
from optpy.drawing import energy_page
from optpy.energy.stencils import offsets_read, places_read

H, W, V, E = op.dims("H, W, V, E")
i, j = op.indices(H, W)
e = op.indices(E)
X, A, w = op.Unknown("X", (H, W)), op.Array("A", (H, W)), op.Param("w")
ENERGY = op.Energy(fixed={X: A[i, j] < w}, fit=X[i, j] - A[i, j], reg=w * (X[i, j] - X[i, j + 2]))
DATA = {"X": np.zeros((3, 4)), "A": np.ones((3, 4)), "w": 0.5}


class Tags(HTMLParser):
    """The elements that are opened, and all text."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]

    def handle_data(self, data: str) -> None:
        self.text += f"{data}\n"


def read(html: str) -> Tags:
    found = Tags()
    found.feed(html)
    return found


def test_the_page_tells_of_terms_declarations_stencils_and_j() -> None:
    page = read(ENERGY.show(DATA).html)
    lines = page.text.split("\n")
    for text in ("fit", "reg", "(H=3, W=4)", "unknown", "param", "A"):
        assert text in lines
    assert "6" in lines  # 1/2 of 12 ones: the cost of fit
    assert "24 rows, 12 columns, 24 entries not 0." in lines  # reg: two for each pixel of the first two columns
    assert page.tags.count("math") == 3
    assert page.tags.count("img") == 2


def test_the_page_needs_nothing_but_itself() -> None:
    assert all(link.startswith("data:") for link in read(ENERGY.show(DATA).html).links)


def test_conditions_are_escaped() -> None:
    assert "A[i, j] < w" in read(ENERGY.show(DATA).html).text


def test_long_formulas_and_large_j_are_left_out_and_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    long = X[i, j]
    for n in range(200):
        long = op.sin(long + n)
    monkeypatch.setattr(energy_page, "LARGEST_PATTERN", 11)
    page = read(op.Energy(long=long).show({"X": np.zeros((3, 4))}).html)
    assert "too long to be read as a formula" in page.text
    assert "J has 12 rows: too many to draw. Show the energy with smaller data." in page.text
    assert page.tags.count("img") == 1  # its stencil


def test_points_of_graphs_are_told_in_words() -> None:
    a, b = op.Graph("G", E, (V, V))[e]
    P = op.Unknown("P", (V,))
    energy = op.Energy(edges=P[a] - P[b])
    (residual,) = energy.problem.residuals
    assert offsets_read(residual) == {}
    ((field, places),) = places_read(residual).items()
    page = read(energy.show({"P": np.zeros(3), "G": np.array([[0, 1], [1, 2]])}).html)
    assert field.name == "P"
    assert " ".join(places) in page.text


def test_offsets_are_those_of_every_read() -> None:
    _, reg = ENERGY.problem.residuals
    assert {f.name: o for f, o in offsets_read(reg).items()} == {"X": frozenset({(0, 0), (0, 2)})}


def test_a_page_is_saved_and_shown_in_notebooks(tmp_path: Path) -> None:
    page = ENERGY.show(DATA)
    page.save(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == page.html
    assert read(page._repr_html_()).tags == ["iframe"]


def test_a_page_opens_in_the_browser(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    page = ENERGY.show(DATA)
    file = page.open()
    assert opened == [file.as_uri()]
    assert file.read_text(encoding="utf-8") == page.html
    file.unlink()


def test_data_that_does_not_fit_is_refused() -> None:
    with pytest.raises(op.DataError, match="w"):
        ENERGY.show({"X": np.zeros((3, 4)), "A": np.ones((3, 4))})


def test_notebooks_show_energies_and_reports() -> None:
    shown = read(ENERGY._repr_html_())
    assert shown.tags.count("table") == 2
    assert "cost" in shown.text
    good, bad = (
        ENERGY.diagnose(DATA),
        op.Energy(none=op.where(A[i, j] < 0, X[i, j], 0)).diagnose({"X": np.zeros((3, 4)), "A": np.ones((3, 4))}),
    )
    for report in (good, bad, op.check_gradients(ENERGY, DATA)):
        assert read(report._repr_html_()).text.strip() == str(report).strip()
    assert ("#c33" in bad._repr_html_()) is not bad.ok
    assert ("#c33" in good._repr_html_()) is not good.ok


def test_without_matplotlib_the_cure_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    with pytest.raises(op.OptpyError, match=r"pip install 'optpy\[plot\]'"):
        ENERGY.show(DATA)
    with pytest.raises(op.OptpyError, match=r"pip install 'optpy\[plot\]'"):
        op.show_residuals(ENERGY, DATA)
