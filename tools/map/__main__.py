"""Prints docs/map.md."""

from tools.map.document import document

if __name__ == "__main__":
    print(document(), end="")
