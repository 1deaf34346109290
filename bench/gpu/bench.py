"""An energy on a GPU as the benchmarks hold it: a session whose routines and linear solves they run one by one."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Any, Self, final

import numpy as np

from bench.case import Case, Data
from bench.gpu.counting import CountingDevice, Counts
from optpy.api.device_choice import DeviceChoice
from optpy.api.plan import Solver, build
from optpy.api.problem import CompiledProblem
from optpy.api.session import Session
from optpy.energy.derive.vectors import vector
from optpy.ir import Group, Task, VectorKind, tangent
from optpy.kernels.runtime.cuda.device import Device
from optpy.kernels.runtime.cuda.executor import CudaExecutor
from optpy.solver.options import SolveOptions
from optpy.solver.protocol import Damping, LinearLimits


def gpu_solver(case: Case, dtype: str, device: Device, deterministic: bool = False) -> Solver:
    """The case compiled for a device; what `op.compile` does for the one that it finds."""
    return build(case.energy, dtype, choice=DeviceChoice(device, device.name, deterministic))


@final
class Bench:
    """A case bound to data on a device, linearised and damped, so that its routines can run in any order.

    Args:
        device: counts what it is asked for.
        data: arrays of its module, or NumPy's.
    """

    def __init__(self, case: Case, data: Data, dtype: str, device: CountingDevice, deterministic: bool = False) -> None:
        self.case, self.data, self.device, self.dtype = case, data, device, dtype
        self.solver = gpu_solver(case, dtype, device, deterministic)
        self.session: Session = self.solver.start(data, method=case.method)
        self.problem: CompiledProblem = self.session._problem
        executor = self.problem.executor
        assert isinstance(executor, CudaExecutor)
        self.executor = executor
        self.preconditioner = str(self.problem.first_preconditioner)
        self.problem.set_preconditioner(self.problem.first_preconditioner)
        self._prepare()

    def _prepare(self) -> None:
        options = SolveOptions.of(method=self.case.method)
        radius = options.first_radius(is_fit=self.problem.is_fit) if self.case.method == "lm" else math.inf
        self.problem.linearise()
        self.problem.damp(Damping(radius, options.min_lm_diagonal, options.max_lm_diagonal, options.jacobi_scaling))
        self.executor.wait()

    @property
    def damped(self) -> bool:
        """Whether its linear systems are (J^T J + D) delta = -g."""
        return self.case.method == "lm"

    @property
    def product(self) -> Group:
        """The group of the product that conjugate gradients take: with D where the case is damped."""
        return Group.of(Task.PRODUCT, damped=self.damped)

    @property
    def nbytes(self) -> int:
        """All memory of the solve."""
        return self.problem.nbytes

    def run(self, group: Group, repeat: int) -> float:
        """Seconds for one run of a group, waited for after all of them."""
        return self.problem.benchmark(group, repeat)

    def timed(self, queue: Callable[[], object]) -> float:
        """Seconds until what is queued is done."""
        self.device.mark().wait()
        begin = time.perf_counter()
        queue()
        self.device.mark().wait()
        return time.perf_counter() - begin

    def launches(self, group: Group) -> Counts:
        """What one run of a group asks of the device."""
        before = self.device.counts.copy()
        self.executor.queue(group)
        counted = self.device.counts.copy() - before
        self.executor.wait()
        return counted

    def linear_solve(self, iterations: int) -> tuple[float, int, Counts]:
        """Seconds of a linear solve without tolerances, the iterations it took, and what it asked of the device."""
        self.executor.wait()
        before, begin = self.device.counts.copy(), time.perf_counter()
        summary = self.problem.solve_linear(LinearLimits(max_iterations=iterations))
        seconds = time.perf_counter() - begin
        return seconds, summary.iterations, self.device.counts.copy() - before

    # -- the product J^T J p on vectors, for comparisons -----------------------------------------------------------

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """(*dims, channels) of each unknown's part of a vector."""
        buffers = self.executor.buffers
        return {
            u.name: (*(buffers.sizes[d] for d in u.dims), tangent(u).channels)
            for u in self.case.energy.problem.unknowns
        }

    def apply_jtj(self, p: Mapping[str, Any]) -> dict[str, Any]:
        """J^T J p without D, by optpy, at the unknowns in the data; arrays of the device's module."""
        self.problem._linearise_at_x()  # a linear solve leaves J at the end of its step
        unknowns = self.case.energy.problem.unknowns
        for u in unknowns:
            self.executor.buffers.write(vector(VectorKind.P, u), p[u.name])
        self.executor.queue(Group.PRODUCT)
        return {u.name: self.executor.buffers.read(vector(VectorKind.AP, u)) for u in unknowns}

    def random_vector(self, seed: int = 0) -> dict[str, Any]:
        """A vector of the solve's dtype on the device; 0 where nothing is solved for, as J^T J leaves it."""
        xp, rng = self.device.xp, np.random.default_rng(seed)
        drawn = {n: xp.asarray(rng.standard_normal(s, np.float32).astype(self.dtype)) for n, s in self.shapes.items()}
        for name, kept in self.free().items():
            drawn[name] = drawn[name] * kept
        return drawn

    def free(self) -> dict[str, Any]:
        """1 where J^T J has something on its diagonal, else 0; of the shapes of the vectors."""
        buffers = self.executor.buffers
        self.problem._linearise_at_x()
        self.executor.queue(Group.GRADIENT)
        diagonal = {u.name: buffers.read(vector(VectorKind.C, u)) for u in self.case.energy.problem.unknowns}
        return {name: (values != 0).astype(self.dtype) for name, values in diagonal.items()}

    def stacked(self, vectors: Mapping[str, Any]) -> Any:
        """One vector, in the order of the columns of `energy.jacobian`."""
        return self.device.xp.concatenate([vectors[name].ravel() for name in self.shapes])

    def split(self, stacked: Any) -> dict[str, Any]:
        """The other way round."""
        parts, begin = {}, 0
        for name, shape in self.shapes.items():
            parts[name] = stacked[begin : begin + math.prod(shape)].reshape(shape)
            begin += math.prod(shape)
        return parts

    @classmethod
    def of(cls, case: Case, data: Data, dtype: str, device: Device) -> Self:
        """On a device that is counted from now on."""
        return cls(case, data, dtype, CountingDevice(device))
