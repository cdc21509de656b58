"""Figures: each returns the Axes it drew on, and says the same as the plan."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from stead import plot
from stead.errors import BadInput, MissingExtra
from stead.placing.place import place_problem
from stead.plan import Plan
from stead.problem import Throughput
from stead.solvers import Budget
from stead.testing import two_towers

matplotlib_here = importlib.util.find_spec("matplotlib") is not None
needs_matplotlib = pytest.mark.skipif(not matplotlib_here, reason="needs matplotlib: pip install stead[plot]")


@pytest.fixture(scope="module")
def plan() -> Plan:
    return place_problem(two_towers(), budget=Budget(evaluations=200))


@needs_matplotlib
@pytest.mark.parametrize("kind", sorted(plot.FIGURES))
def test_every_figure_draws_on_the_axes_it_is_given(kind: str, plan: Plan) -> None:
    from matplotlib.figure import Figure

    ax = Figure().subplots()
    assert plot.FIGURES[kind](plan, ax) is ax  # type: ignore[call-arg]
    assert ax.has_data()


@needs_matplotlib
def test_a_gantt_ends_when_the_run_ends(plan: Plan) -> None:
    ax = plot.gantt(plan)
    assert ax.get_xlim() == (0.0, 7.5)
    assert [label.get_text() for label in ax.get_yticklabels()][:2] == ["d0", "d1"]


@needs_matplotlib
@pytest.mark.parametrize("kind", sorted(set(plot.FIGURES) - {"history"}))
def test_steady_throughput_has_figures_too(kind: str, tmp_path: Path) -> None:
    steady = place_problem(two_towers(Throughput()), budget=Budget(evaluations=50))
    plot.save_figure(steady, kind, tmp_path / "figure.svg")
    assert (tmp_path / "figure.svg").read_text().startswith("<?xml")


@pytest.mark.skipif(matplotlib_here, reason="matplotlib is here")
def test_without_matplotlib_a_figure_says_what_to_install(plan: Plan) -> None:
    with pytest.raises(MissingExtra, match=r"stead\[plot\]"):
        plot.gantt(plan)


def test_a_figure_that_does_not_exist_is_refused_by_name(plan: Plan) -> None:
    with pytest.raises(BadInput, match="did you mean 'gantt'"):
        plot.save_figure(plan, "gant", "x.pdf")
    with pytest.raises(BadInput, match=r"ends in \.pdf, \.svg, \.png"):
        plot.save_figure(plan, "gantt", "report.html")
