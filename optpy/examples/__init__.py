"""The folder problems/ of this checkout, under the name that it has in an installed package.

`optpy example NAME` runs its programs; `from optpy.examples import image_warping` imports them. A wheel has the files
of problems/ here, in place of this one.
"""

from __future__ import annotations

from pathlib import Path

__path__ = [str(Path(__file__).parents[2] / "problems")]
