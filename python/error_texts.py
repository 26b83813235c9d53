#!/usr/bin/env python3
"""error_texts.py ERRORS_MD OUTPUT: writes the meaning and the remedy of each error id, for the exceptions of the package.

The input is docs/reference/errors.md, the public list of errors.
"""
import re
import sys
from pathlib import Path


def texts(document):
    found = {}
    for identifier, body in re.findall(r"^### `([\w.-]+)`\n(.*?)(?=^##|\Z)", document, re.M | re.S):
        flat = " ".join(body.split())
        match = re.fullmatch(r"`\w+`\. (.*?) - Usual causes: .*? - What to do: (.*)", flat)
        if not match:
            raise ValueError(f"the entry of {identifier} is not understood")
        found[identifier] = match.groups()
    if not found:
        raise ValueError("no error was found")
    return found


def main():
    found = texts(Path(sys.argv[1]).read_text())
    lines = ['"""The meaning and the remedy of each error id: made by python/error_texts.py."""', "", "TEXTS = {"]
    lines += [f"    {identifier!r}: ({meaning!r}, {remedy!r})," for identifier, (meaning, remedy) in found.items()]
    Path(sys.argv[2]).write_text("\n".join([*lines, "}", ""]))


if __name__ == "__main__":
    main()
