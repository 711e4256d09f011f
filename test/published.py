"""Published data that is no part of the repository.

Tests of it are skipped only where the folder of the data is missing. With the folder, or with
PUBLISHED_DATA that names one, a missing file fails its tests.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

NAMED = os.environ.get("PUBLISHED_DATA")
FOLDER = Path(NAMED or Path(__file__).parents[2] / "shared" / "data")
TRACE = FOLDER / "lrtrace_drone_high.json"
"""Trace of Ling et al. 2024."""
needs_published = pytest.mark.skipif(
    not NAMED and not FOLDER.is_dir(), reason="no folder of published data: see PUBLISHED_DATA"
)
