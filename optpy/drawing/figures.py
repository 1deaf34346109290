"""Figures of Matplotlib, which is an extra: made, and written into pages."""

from __future__ import annotations

import io
from base64 import b64encode
from typing import TYPE_CHECKING

from optpy.errors import OptpyError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def new_figure(width: float, height: float) -> Figure:
    """An empty figure, which no window shows until it is asked to, and which notebooks show.

    Args:
        width: in inches.
        height: likewise.

    Raises:
        OptpyError: Matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise OptpyError("pictures need Matplotlib: pip install 'optpy[plot]'") from error
    return Figure(figsize=(width, height), layout="constrained")


def as_img(figure: Figure, text: str) -> str:
    """A figure as an element of a page, the picture inside it.

    Args:
        figure: to be shown.
        text: for readers who do not see it.
    """
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=110)
    return f'<img alt="{text}" src="data:image/png;base64,{b64encode(stream.getvalue()).decode()}">'
