"""Which stencils store their J, and why."""

from __future__ import annotations

from typing import Any

import pytest

import optpy as op
from optpy.energy.derive.linearised import LinearisedResidual, linearise
from optpy.ir import ResidualSchedule, Target
from optpy.scheduling.costs import STREAM
from optpy.scheduling.schedule import schedule_residuals
from optpy.scheduling.stencils import is_stencil, stencil_schedules
from tests.support.schedules import routines_of

H, W = op.dims("H W")
i, j = op.indices(H, W)
X, A = op.Unknown("X", (H, W)), op.Array("A", (H, W))
Y, s, w = op.Unknown("Y", (H,)), op.Unknown("s", ()), op.params("w")


def sources(**terms: Any) -> list[LinearisedResidual]:
    return [linearise(r) for r in op.Energy(**terms).problem.residuals]


def slope() -> op.Expression:
    """The area of a patch of surface: dear, and of three points."""
    across, down = X[i, j + 1] - X[i, j], X[i + 1, j] - X[i, j]
    return op.sqrt(1 + across**2 + down**2) / (2 + op.exp(across * down))


@pytest.mark.parametrize(
    ("residual", "expected"),
    [
        (X[i, j] - X[i, j + 2], True),
        (X[i, j] * A[i - 1, j], True),
        (X[2 * i, j], False),
        (X[i, j] - Y[i], False),
        (X[i, j] * s[()], False),
    ],
)
def test_a_stencil_reads_its_own_grid_at_constant_distances(residual: object, expected: bool) -> None:
    (source,) = sources(r=residual)
    assert is_stencil(source) is expected


def test_of_a_constant_jacobian_nothing_is_stored() -> None:
    found = stencil_schedules(sources(fit=w * (X[i, j] - A[i, j]), smooth=X[i, j] - X[i, j + 1]))
    assert found == {"fit": ResidualSchedule("fit"), "smooth": ResidualSchedule("smooth")}
    assert found["fit"].reason == "its entries of J are constant, or numbers that are read wherever they are"


def test_what_is_dear_is_stored_and_what_is_cheap_is_not() -> None:
    found = stencil_schedules(sources(dear=slope(), cheap=A[i, j] * (X[i, j] - X[i, j + 1])))
    assert found == {"dear": ResidualSchedule("dear", jacobian=True), "cheap": ResidualSchedule("cheap")}
    assert "stored entries of J save" in found["cheap"].reason


def test_many_reads_store_j_and_j_p() -> None:
    """Each is a part of a J p that as many neighbours would compute again."""
    found = stencil_schedules(sources(some=op.sqrt(sum(X[i, j + d] ** 2 for d in range(16)) + 1)))
    assert not found["some"].product
    found = stencil_schedules(sources(many=sum(X[i, j + d] for d in range(33)), more=X[i, j] - A[i, j]))
    assert found == {"many": ResidualSchedule("many", jacobian=True, product=True), "more": ResidualSchedule("more")}
    assert "1089 pairs of its 33 entries" in found["many"].reason


def test_numbers_that_are_brought_anyway_cost_nothing_more() -> None:
    """Alone, the square needs X itself, which is saved with J stored: one number in place of another."""
    (alone,) = stencil_schedules(sources(r=X[i, j] ** 2)).values()
    beside = stencil_schedules(sources(r=X[i, j] ** 2, other=X[i, j] ** 2 * s[()]))["r"]

    def spent(schedule: ResidualSchedule) -> float:
        saved, taken = (float(x) for x in schedule.reason.partition(";")[0].replace(",", "").split() if x[0].isdigit())
        return taken - saved

    assert spent(beside) == spent(alone) + STREAM


def test_j_t_j_is_stored_where_it_has_fewer_numbers_than_j() -> None:
    """Three photographs of one pixel: six numbers in J, three in J^T J, which all residuals share."""
    Flow, B = op.Unknown("Flow", (H, W), 2), op.Array("B", (H, W), 6)
    u, v = Flow[i, j]
    fit = op.vector(*(op.exp(B[i, j][n] * u) * op.cos(B[i, j][n + 3] * v) for n in range(3)))
    found = stencil_schedules(sources(fit=fit, smooth=w * (Flow[i, j] - Flow[i, j + 1])))
    assert found["fit"] == ResidualSchedule("fit", jacobian=True, normal=True)
    assert found["smooth"] == ResidualSchedule("smooth", normal=True)  # three more numbers, and nothing else is left
    assert "; J^T J of fit and 1 more stored saves " in found["fit"].reason
    one = stencil_schedules(sources(fit=op.exp(B[i, j][0] * u) * op.cos(B[i, j][1] * v)))
    assert one["fit"] == ResidualSchedule("fit", jacobian=True)  # two numbers, and three


def test_on_a_gpu_j_t_j_is_stored_only_where_products_then_read_less() -> None:
    """Of one number at each pixel many residuals make their J; three numbers are its stencil."""
    right, down = X[i, j] - X[i, j + 1], X[i, j] - X[i + 1, j]
    many = sources(r=op.vector(*((A[i, j] + k) * d for k in range(20) for d in (right, down))))
    assert stencil_schedules(many)["r"] == ResidualSchedule("r", normal=True)
    assert stencil_schedules(many, gpu=True)["r"] == ResidualSchedule("r")


def test_a_residual_that_is_dear_stores_j_at_each_pixel() -> None:
    energy = op.Energy(r=slope())
    (routine,) = (r for group, found in routines_of(energy).groups.items() if str(group) == "jacobian" for r in found)
    assert [(a.target.field.name, len(a.target.index)) for a in routine.assignments] == [("J.r", 2)] * 4  # and F
    plain = (ResidualSchedule("r"),)
    assert schedule_residuals(sources(r=slope()), Target.CPU, plain) == plain
