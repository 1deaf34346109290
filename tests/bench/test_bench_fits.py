"""The bench of certified fits on a made-up file: its digits, its verdicts and its bar."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from bench import fits, nist
from bench.fits import Run

CERTIFIED = (200.0, 0.5)


def dat_file(folder: Path, total: float | None = None) -> Path:
    """BoxBOD's model with other data, laid out as NIST does."""
    x = np.array([1.0, 2, 3, 5, 7, 10])
    # Perpendicular to both derivatives, so that the least squares stay where they are.
    J = np.stack([1 - np.exp(-CERTIFIED[1] * x), CERTIFIED[0] * x * np.exp(-CERTIFIED[1] * x)], axis=1)
    noise = np.array([3.0, -2, 5, -4, 1, 2])
    noise -= J @ np.linalg.lstsq(J, noise, rcond=None)[0]
    y = CERTIFIED[0] * J[:, 0] + noise
    total = float(noise @ noise) if total is None else total
    head = [
        "NIST/ITL StRD",
        "Dataset Name:  BoxBOD            (BoxBOD.dat)",
        "               Starting Values   (lines 7 to 8)",
        "               Certified Values  (lines 7 to 10)",
        "               Data              (lines 12 to 17)",
        "        Start 1     Start 2           Parameter     Standard Deviation",
        f"  b1 =   150  180  {CERTIFIED[0]:.10E}  1.2354515176E+01",
        f"  b2 =   0.4  0.6  {CERTIFIED[1]:.10E}  1.0455993237E-01",
        f"Residual Sum of Squares:                    {total:.10E}",
        "Number of Observations:                             6",
        "Data:   y             x",
    ]
    path = folder / "BoxBOD.dat"
    path.write_text("\n".join([*head, *(f"  {b:.15E}  {a:.1f}" for a, b in zip(x, y, strict=True)), ""]))
    return path


def test_every_model_is_the_same_in_optpy_and_in_numpy() -> None:
    rng = np.random.default_rng(0)
    for name, formula in nist.FORMULAS.items():
        n = _parameters(formula)
        b, x = rng.uniform(0.5, 1.5, n), rng.uniform(1, 2, (2, 5) if name == "Nelson" else 5)
        fit = nist.Fit(name, np.stack([b, b]), b, 1.0, np.zeros(5), x)
        energy, data = fit.energy(), fit.data(0)
        np.testing.assert_allclose(energy.residuals(data)["fit"], fit.residuals(b), rtol=1e-13)
        np.testing.assert_allclose(energy.jacobian(data).toarray(), fit.jacobian(b), rtol=1e-9, atol=1e-12)


def _parameters(formula: nist.Formula) -> int:
    """How many a model needs: the least number that it can be evaluated with; rational ones are made for any."""
    rational = {nist.FORMULAS[name]: n for name, n in (("Hahn1", 7), ("Kirby2", 5), ("Thurber", 7))}
    if formula in rational:
        return rational[formula]
    for n in range(2, 10):
        try:
            formula(nist.IN_NUMPY, np.ones(n), np.full((2, 3), 2.0))
        except IndexError:
            continue
        return n
    raise AssertionError("a model with more than nine parameters")


def test_a_file_is_read(tmp_path: Path) -> None:
    fit = nist.read_fit(dat_file(tmp_path))
    assert fit.name == "BoxBOD"
    assert fit.starts.tolist() == [[150, 0.4], [180, 0.6]]
    assert fit.certified.tolist() == list(CERTIFIED)
    assert fit.x.tolist() == [1, 2, 3, 5, 7, 10]
    assert np.sum(fit.residuals(fit.certified) ** 2) == pytest.approx(fit.certified_sum)


def test_an_altered_file_is_refused_and_another_folder_has_it(tmp_path: Path) -> None:
    for name in ("altered", "good"):
        (tmp_path / name).mkdir()
    altered, good = dat_file(tmp_path / "altered", total=1.0), dat_file(tmp_path / "good")
    with pytest.raises(nist.AlteredFileError, match="not as NIST publishes it"):
        nist.read_fit(altered)
    found, missing = nist.find_fits([altered.parent, good.parent])
    assert [fit.name for fit in found] == ["BoxBOD"]
    assert len(missing) == 26
    found, missing = nist.find_fits([altered.parent])
    assert not found
    assert any(str(altered) in text for text in missing)


def test_what_is_no_file_of_nist_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "BoxBOD.dat"
    path.write_text("1 2 3")
    with pytest.raises(ValueError, match="no file of NIST"):
        nist.read_fit(path)


def test_digits_are_those_of_the_worst_parameter(tmp_path: Path) -> None:
    fit = nist.read_fit(dat_file(tmp_path))
    b = fit.certified
    assert fit.digits(b) == nist.DIGITS
    assert fit.digits(b * [1 + 1e-7, 1 - 1e-5]) == pytest.approx(5, abs=1e-3)
    assert fit.digits(b * [1 + 1e-15, 1]) == nist.DIGITS
    assert fit.digits(-20 * b) == 0
    assert fit.digits(np.array([np.nan, 1])) == 0


def made_up(digits: float, success: bool, fit: str = "ENSO", start: int = 1) -> Run:
    return Run(fit, start, "optpy", digits, "STATUS", success, 7, 1.0)


@pytest.mark.parametrize(
    ("digits", "success", "verdict"),
    [
        (4.0, True, "right, success"),
        (11, False, "right, no success"),
        (3.999, True, "wrong, success"),
        (0, False, "wrong, no success"),
    ],
)
def test_verdicts(digits: float, success: bool, verdict: str) -> None:
    assert made_up(digits, success).verdict == verdict


def test_the_bar() -> None:
    right = [made_up(5, True, start=s) for s in (1, 2)]
    boxbod = made_up(0, True, *fits.EXCEPTED)
    assert not fits.missed([*right, boxbod, made_up(3, False)])
    assert "1 of them say" in " ".join(fits.missed([*right, made_up(3, True)]))
    assert "1 of them say" in " ".join(fits.missed([*right, made_up(3, True, "BoxBOD", 2)]))
    assert "3 runs have fewer" in " ".join(fits.missed([boxbod, made_up(3, False), made_up(2, False, start=2)]))
    peer = Run("ENSO", 1, "scipy lm", 0.0, "2", True, 7, 1.0)
    assert not fits.missed([peer] * 5)


def test_the_program_runs_and_leaves_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dat_file(tmp_path)
    output = tmp_path / "results"
    assert fits.main(["--data", str(tmp_path), "--output", str(output)]) == 0
    printed = capsys.readouterr().out
    assert "Bennett5, Chwirut1" in printed
    assert nist.SITE in printed
    assert "2 of 54 runs made: met" in printed
    runs = json.loads((output / "fits.json").read_text())["runs"]
    assert [(r["start"], r["solver"]) for r in runs] == [(s, name) for s in (1, 2) for name in fits.SOLVERS]
    assert all(r["digits"] >= nist.ENOUGH and r["cost"] == pytest.approx(1, abs=1e-6) for r in runs)


def test_without_a_file_nothing_is_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fits.main(["--data", str(tmp_path), "--output", str(tmp_path)]) == 0
    assert "nothing to judge" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        fits.main(["NoSuchFit"])


def test_an_error_is_a_failure(tmp_path: Path) -> None:
    fit = nist.read_fit(dat_file(tmp_path))
    off = nist.Fit(fit.name, np.full((2, 2), -1e3), fit.certified, fit.certified_sum, fit.y, fit.x)
    for solver in fits.SOLVERS:
        r = fits.run(off, 1, solver, off.energy())
        assert r.verdict == "wrong, no success"
        assert "Error" in r.status
