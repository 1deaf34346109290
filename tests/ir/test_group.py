"""Groups: their names, which sources and users rely on, say what their fields say."""

from __future__ import annotations

import pytest

from optpy.ir import VECTOR_UPDATES, Group, Preconditioning, Task, When


def test_a_name_says_the_task_the_damping_and_the_sweeps() -> None:
    assert str(Group.PRODUCT_DAMPED) == "applyJTJ_damped"
    assert Group.named("start_block") is Group.START_BLOCKS
    for g in Group:
        assert g == f"{g.task.text}{'_damped' if g.damped else ''}{g.preconditioning}"
    assert len({(g.task, g.preconditioning, g.damped) for g in Group}) == len(list(Group))


def test_a_group_is_found_by_its_fields() -> None:
    assert Group.of(Task.PRODUCT) is Group.PRODUCT
    for preconditioning in Preconditioning:
        assert [Group.of(task, preconditioning) for task in VECTOR_UPDATES] == [
            f"{task.text}{preconditioning}" for task in VECTOR_UPDATES
        ]
    assert Group.of(Task.PRODUCT, damped=True) is Group.PRODUCT_DAMPED
    with pytest.raises(KeyError):
        Group.of(Task.SMOOTH, Preconditioning.BLOCKS)


def test_values_stored_at_a_linearisation_serve_what_runs_there_and_not_at_candidates() -> None:
    found = {g.value for g in Group if g.reads_stored}
    assert found == {"jacobian", "evalJTF", "evalJTF_block", "applyJTJ", "applyJTJ_damped", "modelcost"}


def test_sums_over_residuals_visit_all_points_and_vectors_those_that_are_solved_for() -> None:
    found = {g.value for g in Group if not g.task.over_unknowns}
    over_residuals = {"jacobian", "normal", "modelcost", "cost", "cost_of_step", "evalF"}
    assert found == {"funcs", "solved", "precompute", *over_residuals}


def test_every_moment_of_a_solve_has_its_groups() -> None:
    assert {g.task.when for g in Group} == set(When)
    assert {g for g in Group if g.task.when is When.PRODUCT} == {Group.PRODUCT, Group.PRODUCT_DAMPED}
