"""A server that ignores polite signals and has a child of its own."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

if __name__ == "__main__":
    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, signal.SIG_IGN)
    event_log = next(word for word in sys.argv if word.startswith("event_log:=")).split(":=", 1)[1]
    sleep = [sys.executable, "-c", "import time; time.sleep(600)", event_log]
    with subprocess.Popen(sleep):
        line = json.dumps({"event": "ready", "t": time.monotonic()})
        Path(json.loads(event_log)).write_text(line + "\n")
