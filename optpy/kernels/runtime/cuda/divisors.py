"""Whole numbers by which the threads of a GPU divide without dividing."""

from __future__ import annotations

from optpy.kernels.codegen.cuda.context import Divisor


def divisor(number: int, index: str) -> Divisor:
    """The divisor that ``optpy_divided`` of ``kernels/cuda/divisor.cuh`` takes in the place of a number.

    With d at most 2^b, the multiplier is m = floor(2^(N + b) / d) + 1, a number of N + 1 bits. Then n m / 2^(N + b) is
    above n / d by less than 1 / d for all n below 2^N, and has the same floor (Granlund and Montgomery, PLDI 1994).

    Args:
        number: d. Nothing is divided by 0, the size of an empty grid: 1 stands for it.
        index: the type of what is divided, "int" or "long long".
    """
    bits = 31 if index == "int" else 63
    number = max(number, 1)
    places = (number - 1).bit_length()
    return Divisor(2 ** (bits + places) // number + 1, places)
