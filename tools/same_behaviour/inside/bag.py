"""What the bag of a folder says about itself, as JSON: no messages, no times, no counts."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import yaml
from rosbags.highlevel import AnyReader


def bag(folder: Path) -> dict[str, Any]:
    """Return what a bag says about itself, without times and counts."""
    found = {}
    with AnyReader([folder]) as reader:
        for connection in sorted(reader.connections, key=lambda one: one.topic):
            found[connection.topic] = {
                "type": connection.msgtype,
                "definition": connection.msgdef.data,
                "qos": repr(getattr(connection.ext, "offered_qos_profiles", "")),
            }
    metadata = yaml.safe_load((folder / "metadata.yaml").read_text(encoding="utf-8"))
    inside = metadata["rosbag2_bagfile_information"]
    for changing in ("duration", "starting_time", "message_count", "files",
                     "topics_with_message_count"):  # fmt: skip
        inside[changing] = sorted(inside[changing]) if isinstance(inside[changing], dict) else None
    files = sorted(path.name for path in folder.iterdir())
    return {"topics": found, "metadata": metadata, "files": files}


if __name__ == "__main__":
    print(json.dumps(bag(Path(sys.argv[1])), default=repr))
