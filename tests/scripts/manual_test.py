#!/usr/bin/env python3
# manual_test.py FOLDER LIBRARY: every function that the library exports has a manual page that names it; no page makes
# the formatters that are here complain. Without one of them the status is 77: skipped.
import re
import shutil
import subprocess
import sys
from pathlib import Path

# Each reads one page. Their warnings and the page's text go different ways.
FORMATTERS = [
    ["groff", "-man", "-Tutf8", "-ww", "-z"],
    ["man", "--warnings", "-E", "UTF-8", "-l"],
    ["mandoc", "-T", "lint", "-W", "error"],
]


def exported(library):
    symbols = subprocess.run(["nm", "-D", "--defined-only", library], check=True, capture_output=True, text=True).stdout
    return {line.split()[-1].split("@")[0] for line in symbols.splitlines() if line.split()[-2] != "A"}


def names_of(pages, name):
    """The names that the page of `name` explains, through an alias."""
    text = pages.get(name, "")
    alias = re.match(r"\.so man3/(\w+)\.3$", text)
    if alias:
        text = pages.get(alias.group(1), "")
    found = re.search(r"^\.SH NAME\n(.*?) \\- ", text, re.M)
    return re.split(r", ", found.group(1)) if found else []


def main():
    folder, library = Path(sys.argv[1]), sys.argv[2]
    pages = {path.stem: path.read_text() for path in folder.glob("*.3")}
    functions = exported(library)
    objections = [f"{name} has no page" for name in sorted(functions) if name not in names_of(pages, name)]
    overview = pages.get("weft", "")
    objections += [f"{name} is not in the overview" for name in sorted(functions) if f"\\fB{name}\\fR(3)" not in overview]
    here = [formatter for formatter in FORMATTERS if shutil.which(formatter[0])]
    for name, text in sorted(pages.items()):
        if text.startswith(".so "):
            continue
        for formatter in here:
            said = subprocess.run([*formatter, str(folder / (name + ".3"))], capture_output=True, text=True)
            words = said.stderr + (said.stdout if formatter[0] == "mandoc" else "")
            if words or said.returncode != 0:
                objections.append(f"{' '.join(formatter)} on {name}.3: {words.strip() or said.returncode}")
    for objection in objections:
        print(objection)
    print(f"{len(functions)} functions, {len(pages)} pages, {len(here)} formatters, {len(objections)} objections")
    return 1 if objections else 0 if here else 77


if __name__ == "__main__":
    sys.exit(main())
