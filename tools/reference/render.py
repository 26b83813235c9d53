# render.py: renders an Entry as a manual page of section 3 (roff, the macros of man(7)) or as Markdown.
# Words in backticks and Weft's names are highlighted; names that have a page become links.
import re

ROFF = str.maketrans({"\\": "\\e", "-": "\\-", "'": "\\(aq", "`": "\\(ga", "^": "\\(ha", "~": "\\(ti"})
WORD = re.compile(r"`([^`]*)`|\b((?:weft[A-Z]|WEFT_)\w*)")


class Man:
    suffix = ".3"

    def __init__(self, page_of, version):
        self.page_of = page_of  # the page of each name
        self.version = version

    @staticmethod
    def escaped(text):
        text = text.translate(ROFF)
        return re.sub(r"(?m)^\.", r"\\&.", text)

    def sentence(self, text, page):
        def word(match):
            name = match.group(1) or match.group(2)
            return f"\0B{name}\0R" + ("(3)" if self.page_of.get(name, page) != page else "")

        return self.escaped(WORD.sub(word, text)).replace("\0", "\\f")

    def term(self, text, page):
        return self.sentence(text, page) if WORD.search(text) else f"\\fI{self.escaped(text)}\\fR"

    def page(self, entry):
        page = entry.names[0]
        lines = [f'.TH "{page}" 3 "" "Weft {self.version}" "Weft"', ".SH NAME",
                 self.escaped(", ".join(entry.names)) + " \\- " + self.escaped(entry.summary.replace("`", ""))]
        for title, blocks in entry.sections:
            lines.append(f".SH {title}")
            before = "title"
            for block in blocks:
                if block[0] == "title":
                    lines.append(f".SS {self.escaped(block[1])}")
                elif block[0] == "code":
                    lines += [".nf", ".ft B", self.escaped(block[1]), ".ft P", ".fi"]
                elif block[0] == "item":
                    lines += [".TP", self.term(block[1], page), self.sentence(block[2], page)]
                else:
                    lines += [] if before == "title" else [".PP"]
                    lines.append(self.sentence(block[1], page))
                before = block[0]
        return "\n".join(lines) + "\n"

    def files(self, entry):
        """Each name has a file; those of aliases point to the page."""
        page = entry.names[0]
        yield page + self.suffix, self.page(entry)
        for alias in entry.names[1:]:
            yield alias + self.suffix, f".so man3/{page}.3\n"


class Markdown:
    suffix = ".md"

    def __init__(self, page_of, version):
        self.page_of = page_of
        self.version = version

    def sentence(self, text, page):
        def word(match):
            name = match.group(1) or match.group(2)
            other = self.page_of.get(name, page)
            return f"`{name}`" if other == page else f"[`{name}`]({self.link(other)})"

        pieces = []
        at = 0
        for match in WORD.finditer(text):
            pieces += [re.sub(r"([*_<>|])", r"\\\1", text[at : match.start()]), word(match)]
            at = match.end()
        return "".join(pieces) + re.sub(r"([*_<>|])", r"\\\1", text[at:])

    def link(self, page):
        return f"{page}.md"

    def term(self, text, page):
        return self.sentence(text, page) if WORD.search(text) else f"*{text}*"

    def page(self, entry):
        page = entry.names[0]
        lines = [f"# {', '.join(entry.names)}", "", self.sentence(entry.summary, page) + ".", ""]
        for title, blocks in entry.sections:
            lines += [f"## {title.capitalize()}", ""]
            for block in blocks:
                if block[0] == "title":
                    lines += [f"### {block[1]}", ""]
                elif block[0] == "code":
                    lines += ["```c", block[1], "```", ""]
                elif block[0] == "item":
                    lines += [f"- {self.term(block[1], page)}: {self.sentence(block[2], page)}", ""]
                else:
                    lines += [self.sentence(block[1], page), ""]
        return "\n".join(lines[:-1]) + "\n"

    def files(self, entry):
        yield entry.names[0] + self.suffix, self.page(entry)


class Page(Markdown):
    """All entries on one page, which a reader can search."""

    def __init__(self, page_of, version):
        super().__init__(page_of, version)
        self.anchors = {}

    def link(self, page):
        return "#" + self.anchors[page]

    def whole(self, entries):
        overview = entries[0].names[0]
        for entry in entries:
            heading = "reference" if entry.names[0] == overview else ", ".join(entry.names)
            self.anchors[entry.names[0]] = re.sub(r"[^a-z0-9_-]", "", heading.lower().replace(" ", "-"))
        lines = ["# Reference", "", "After reading this page you know the contract of every call and type.",
                 "It is generated from `include/weft`: `tools/reference/reference.py --page` writes it.", ""]
        for entry in entries:
            page = entry.names[0]
            if page != overview:
                lines += [f"## {', '.join(entry.names)}", ""]
            for title, blocks in entry.sections:
                if title in ("SEE ALSO", "RETURN VALUE") or (page == overview and title == "SYNOPSIS"):
                    continue
                if page == overview and title != "DESCRIPTION":
                    lines += [f"### {title.capitalize()}", ""]
                elif title not in ("SYNOPSIS", "DESCRIPTION"):
                    if len(blocks) == 1:
                        lines += [f"{title.capitalize()}: {self.sentence(blocks[0][-1], page)}", ""]
                        continue
                    lines += [f"{title.capitalize()}:", ""]
                for block in blocks:
                    if block[0] != "item" and lines[-1]:
                        lines.append("")
                    if block[0] == "title":
                        lines += [f"**{block[1]}**", ""]
                    elif block[0] == "code":
                        lines += ["```c", re.sub(r"^#include <weft/weft.h>\n\n", "", block[1]), "```", ""]
                    elif block[0] == "item":
                        lines.append(f"- {self.term(block[1], page)}: {self.sentence(block[2], page)}")
                    else:
                        lines += [self.sentence(block[1], page), ""]
                if lines[-1]:
                    lines.append("")
        return "\n".join(lines[:-1]) + "\n"
