"""Times the first steps of a fresh process and prints them as JSON: `python -m bench.startup CASE SIZE DTYPE`."""

from __future__ import annotations

import importlib
import json
import sys
import time


def main(name: str, size: int, dtype: str) -> dict[str, float | bool]:
    """Imports optpy, builds the energy, compiles it, solves once: seconds of each.

    `import optpy` comes first of all, so that what it needs is counted; the problem's own imports (such as
    Pillow's) are counted as the energy's. What the first solve compiles, such as multigrid, is counted as compiling.
    """
    begin = time.perf_counter()
    import optpy as op

    imported = time.perf_counter()
    case = importlib.import_module(f"bench.{name}").CASE
    built = time.perf_counter()
    solver = op.compile(case.energy, device="cpu", dtype=dtype)
    compiled = time.perf_counter()
    data = case.data(size)
    read = time.perf_counter()
    before = solver.timing.total
    result = solver.solve(data, method=case.method, max_iterations=1)
    solved = time.perf_counter()
    late = solver.timing.total - before
    return {
        "import_optpy": imported - begin,
        "build_energy": built - imported,
        "compile": compiled - built + late,
        "first_solve": solved - read - late,
        "cache_hit": result.timing.cache == "hit",
    }


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]), sys.argv[3])))
