#!/usr/bin/env python3
# reference.py HEADER...: the reference of the C interface, from the comments of its headers.
# With --man FOLDER it writes manual pages of section 3, one a name, and weft.3, which lists them.
# With --markdown FOLDER it writes the same as Markdown; `-` writes all to stdout.
# With --page FILE it writes one page of Markdown: docs/reference/api.md.
# With --check-page FILE its status is 1 if that page is stale.
# With --check its status is 1 if functions are not fully explained, and it prints them.
import argparse
import os
import re
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
import checked_output
import completeness
import document
import header
import render


def read(paths):
    """The headers understood, and their version."""
    texts = [Path(path).read_text() for path in paths]
    macros = dict(re.findall(r"^#define WEFT_(MAJOR|MINOR|PATCH) (\d+)$", "\n".join(texts), re.M))
    version = ".".join(macros.get(part, "0") for part in ("MAJOR", "MINOR", "PATCH"))
    # Declarations without a heading are types.
    headers = [header.parse(text, "Types") for text in texts]
    for path, one in zip(paths, headers):
        for page in one.pages:
            page.include = include_of(path)
    return headers, version


def include_of(path):
    """The header that a program includes; weft.h includes types.h."""
    return "weft/weft.h" if Path(path).name == "types.h" else f"weft/{Path(path).name}"


def write(folder, files, suffix):
    """The folder has these pages and no older ones, and is newer than they are: it stands for them in a build."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        checked_output.write_text(folder / name, text)
    for old in folder.glob(f"{document.OVERVIEW}*{suffix}"):
        if old.name not in files:
            old.unlink()
    os.utime(folder)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("headers", nargs="+")
    parser.add_argument("--man")
    parser.add_argument("--markdown")
    parser.add_argument("--page")
    parser.add_argument("--check-page")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    headers, version = read(arguments.headers)
    found = list(completeness.objections(headers)) if arguments.check else []
    for objection in found:
        print(objection)
    entries = document.entries(headers)
    page_of = {name: entry.names[0] for entry in entries for name in entry.names}
    for form, place in ((render.Man, arguments.man), (render.Markdown, arguments.markdown)):
        if place:
            made = form(page_of, version)
            files = {name: text for entry in entries for name, text in made.files(entry)}
            if place == "-":
                sys.stdout.write("\n".join(files.values()))
            else:
                write(Path(place), files, made.suffix)
    page = render.Page(page_of, version).whole(entries) if arguments.page or arguments.check_page else ""
    if arguments.page:
        checked_output.write_text(Path(arguments.page), page)
    if arguments.check_page and Path(arguments.check_page).read_text() != page:
        print(f"{arguments.check_page} does not fit the headers: run {' '.join([sys.argv[0], *arguments.headers])} --page "
              f"{arguments.check_page}")
        found.append(arguments.check_page)
    if arguments.check:
        print(f"{len(page_of) - 1} names explained, {len(found)} objections")
    return 1 if found else 0


if __name__ == "__main__":
    checked_output.run(main)
