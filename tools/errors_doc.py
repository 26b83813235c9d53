#!/usr/bin/env python3
# errors_doc.py ERROR_DEF [--check DOCUMENT]: writes docs/reference/errors.md from src/base/error.def.
# With --check it reports whether the document is current.
import re
import sys
import textwrap
from pathlib import Path

sys.dont_write_bytecode = True
import checked_output

HEAD = """# Errors

Each error has an id.
`weftGetLastError` and warnings in the log end with it in brackets: `... [mismatch.count]`.
`weftGetLastErrorInfo` gives the id, the ranks and the operation as data.
`weft explain ID` prints what this page says.
Programs may compare ids: an id keeps its meaning.

This page is made from `src/base/error.def`:
`tools/errors_doc.py src/base/error.def > docs/reference/errors.md`."""
LITERAL = r'"(?:[^"\\]|\\.)*"'


def text_of(literals):
    """The text of adjacent C string literals."""
    return "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', literals))


def document(source):
    lines, rows, title = [HEAD], 0, None
    texts = rf"((?:{LITERAL}\s*)+)"
    row = rf"^WEFT_ERROR\(\s*\w+,\s*({LITERAL}),\s*(\w+),\s*{texts},\s*{texts},\s*{texts}\)"
    # A section comment directly before rows, or a row.
    for match in re.finditer(rf"^//\s*(?P<title>[^\n]+)\n(?=WEFT_)|{row}", source, re.M):
        if match.group("title"):
            title = match.group("title").split(". ")[0].rstrip(".") if source[: match.start()].endswith("\n\n") else title
            lines += ["", f"## {title}"]
            continue
        identifier, result, meaning, causes, remedy = match.groups()[1:]
        lines += ["", f"### `{text_of(identifier)}`", ""]
        for sentences in (f"`{result}`. {text_of(meaning)}", f"- Usual causes: {text_of(causes)}", f"- What to do: {text_of(remedy)}"):
            lines += textwrap.wrap(sentences, 100, subsequent_indent="  " if sentences[0] == "-" else "", break_on_hyphens=False)
            lines += [""] if sentences[0] == "`" else []
        rows += 1
    if rows == 0 or rows != len(re.findall(r"^WEFT_ERROR\(", source, re.M)):
        raise ValueError("a row of error.def is not understood")
    return "\n".join(lines) + "\n"


def main():
    made = document(Path(sys.argv[1]).read_text())
    if len(sys.argv) < 4 or sys.argv[2] != "--check":
        sys.stdout.write(made)
        return 0
    if Path(sys.argv[3]).read_text() == made:
        return 0
    print(f"{sys.argv[3]} does not fit {sys.argv[1]}: run tools/errors_doc.py {sys.argv[1]} > {sys.argv[3]}")
    return 1


if __name__ == "__main__":
    checked_output.run(main)
