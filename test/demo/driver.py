"""The demo with other programs in the place of the nodes: SERVER | FLEET | plain words, as JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from timely_llm.cli.demo import show
from timely_llm.cli.main import exit_with
from timely_llm.demo.settings import DemoSettings

if __name__ == "__main__":
    server, fleet, folder, duration_s = sys.argv[1:]
    settings = DemoSettings(
        robots=3,
        duration_s=float(duration_s),
        output=Path(folder),
        server=tuple(json.loads(server)),
        fleet=tuple(json.loads(fleet)),
    )
    exit_with(lambda: show(settings, ("timely",), Path(folder) / "numbers.json", plain=True))
