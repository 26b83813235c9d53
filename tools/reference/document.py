# document.py: the pages of a reference as titled blocks, before they become roff or Markdown.
# A page is a name, the names that it explains, a line of summary, and sections of blocks.
# Blocks: ("text", sentences), ("item", term, sentences), ("code", lines), ("title", words).
import re
from dataclasses import dataclass

OVERVIEW = "weft"


@dataclass
class Entry:
    names: list  # the first is the page's; the others are aliases
    summary: str
    sections: list  # (title, blocks)


def summary_of(blocks):
    """The beginning of the first sentence, as a line of an index."""
    text = next((block[-1] for block in blocks), "")
    return re.split(r"(?<![0-9])[.:;](?: |$)| \(", text, maxsplit=1)[0]


def of_several(page, which):
    """What each comment of a page says of errors, or threads; named where they differ."""
    said = [(served, getattr(served.doc, which)) for served in page.served if getattr(served.doc, which)]
    said_by_all = [getattr(doc, which) for doc in page.shared if getattr(doc, which)]
    if len(page.served) == 1:
        return [("text", text) for _, text in said] or [("text", text) for text in said_by_all]
    return [("item", names(served), text) for served, text in said] or [("text", text) for text in said_by_all]


def names(served):
    return ", ".join(declaration.name for declaration in served.declarations)


def with_referred(blocks, which, docs, own):
    """The blocks, and the same of the functions of other pages that they refer to: `as weftAllReduce`."""
    said = " ".join(block[-1] for block in blocks)
    others = dict.fromkeys(re.findall(r"\b(?:as|of) (weft[A-Z]\w*)", said))
    others = [name for name in others if name in docs and name not in own]
    found = [("item", f"As {name}", getattr(docs[name], which)) for name in others if getattr(docs[name], which)]
    # A text that only repeats the item's name is dropped.
    kept = [block for block in blocks if block[0] == "item" or not re.fullmatch(r"as weft\w+\.", block[1], re.I)]
    return kept + found if found else blocks


def entry_of(page, docs, neighbours):
    declarations = page.declarations()
    own = {one.name for one in declarations}
    description = []
    for served in page.served:
        if len(page.served) > 1:
            description.append(("title", names(served)))
        description += served.doc.blocks
    shared = [block for doc in page.shared for block in doc.blocks]
    errors, threads = of_several(page, "errors"), of_several(page, "threads")
    sections = [("SYNOPSIS", [("code", f"#include <{page.include}>\n\n" + page.code)]), ("DESCRIPTION", description + shared)]
    if any(declaration.returns == "weftResult_t" for declaration in declarations):
        sections.append(("RETURN VALUE", [("text", "weftSuccess, or a code whose sentence weftGetLastError has.")]))
    if errors:
        sections.append(("ERRORS", with_referred(errors, "errors", docs, own)))
    if threads:
        sections.append(("THREADS", with_referred(threads, "threads", docs, own)))
    sections.append(("SEE ALSO", [("text", ", ".join([f"`{OVERVIEW}`", *neighbours]))]))
    return Entry([one.name for one in declarations], summary_of(page.served[0].doc.blocks), sections)


def neighbours_of(page, pages):
    """Functions under the same heading, and the types that the page's functions take."""
    own = {one.name for one in page.declarations()}
    kinds = " ".join(kind for one in page.declarations() for kind, _ in one.parameters)
    types = set(re.findall(r"\bweft\w+", kinds))
    all_others = [(other, one) for other in pages for one in other.declarations() if one.name not in own]
    return [one.name for other, one in all_others if one.name in types or one.is_function and other.section == page.section]


def overview(headers, index):
    """What the heads of the headers say, and every page with its summary."""
    def without_file(text):
        return re.sub(r"^\S+\.h: (.)", lambda match: match.group(1).upper(), text)

    about = [(*block[:-1], without_file(block[-1])) for header in headers for block in header.head.blocks]
    use = "#include <weft/weft.h>\n\ncc program.c $(pkg-config --cflags --libs weft)"
    sections = [("SYNOPSIS", [("code", use)]), ("DESCRIPTION", about)]
    sections += [(title.upper(), blocks) for title, blocks in index.items()]
    return Entry([OVERVIEW], summary_of(about), sections)


def entries(headers):
    """The pages of the headers; the first is the overview, which names all others."""
    pages = [page for header in headers for page in header.pages]
    docs = {one.name: served.doc for page in pages for served in page.served for one in served.declarations}
    made, index = [], {}
    for page in pages:
        entry = entry_of(page, docs, neighbours_of(page, pages))
        made.append(entry)
        index.setdefault(page.section, []).append(("item", ", ".join(entry.names), entry.summary + "."))
    return [overview(headers, index)] + made
