"""The symbolic core: an expression DAG that simplifies as it is built, and the calculus on it.

Read in this order:

- ``number``, ``order``, ``nodes``: exact numbers, the five kinds of node, their text, interning.
- ``booleans``: conditions as idempotent 0/1 factors that select.
- ``expr``: the operators that build canonical polynomials (``add``, ``mul``, ``power``, ``call``, ``where``).
- ``operations``: the table of functions, with their partials and simplifications.
- ``traverse``: iterative rewrites.
- ``derivative``: partials, Jacobian-vector products J p and adjoints J^T v.
- ``factor``, ``count``: fewer operations, and how many.
- ``affine``: integer index algebra: shifts, floor divisions; ``inversion``: its inversion.
- ``interpret``: evaluation with NumPy, the oracle of the tests.
- ``sympy_bridge``, ``latex``: SymPy and LaTeX.

Nothing here knows of images, meshes or kernels: leaves are variables whose keys mean something to the rest
of optpy. Importing this package imports NumPy at most.
"""
