"""In tiles, whether a point is solved for is loaded while the row above is worked on."""

from __future__ import annotations

from dataclasses import replace

from optpy.ir import loops
from optpy.symbolic.affine import Affine

_ROW, _TOP, _END, _TALL = (Affine.of(loops.Variable(name)) for name in ("row", "top", "end", "tiles.tall"))


def skip_ahead(function: loops.Function) -> loops.Function:
    """Load the mask of a tile's next row before what this row computes, so that none waits for it.

    Beyond the strip's end another point's is loaded instead, which takes no branch.
    """

    def rule(s: loops.Statement) -> loops.Block:
        return (_ahead(s),) if isinstance(s, loops.Tiles) else (s,)

    return replace(function, body=loops.rewrite(function.body, rule))


def _ahead(tiles: loops.Tiles) -> loops.Tiles:
    match tiles.body:
        case (loops.MaskLoad() as load, *rest):
            first = replace(load, name="next", row=_inside(_ROW, _TOP))
            then = replace(load, name="next", row=_inside(_ROW + _TALL, _ROW), again=True)
            here = loops.LetFlag(load.name, (loops.Flag("next"),))
            return replace(tiles, strip=(*tiles.strip, first), body=(here, then, *rest))
    return tiles


def _inside(row: Affine, otherwise: Affine) -> loops.Select:
    return loops.Select((loops.Less(row, _END),), row, otherwise)
