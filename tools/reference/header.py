# header.py: parses a public header and assigns comments to declarations.
# A comment describes the declarations directly under it. Declarations and comments up to an empty line form one page.
# A comment with an empty line under it covers all pages up to the next heading. The first one of a file covers the
# file.
# A heading is `---- Title. What holds for all of it. ----`.
import re
import textwrap
from dataclasses import dataclass, field


@dataclass
class Doc:
    """A comment, taken apart: ("text", sentences) and ("item", names, sentences); what it says of errors and threads."""
    blocks: list = field(default_factory=list)
    errors: str = ""
    threads: str = ""

    def words(self):
        texts = [" ".join(block[1:]) for block in self.blocks] + [self.errors, self.threads]
        return set(re.findall(r"\w+", " ".join(texts)))


@dataclass
class Declaration:
    name: str
    text: str  # as in the header, without WEFT_API
    is_function: bool
    returns: str = ""
    parameters: list = field(default_factory=list)  # (type, name)


@dataclass
class Served:
    doc: Doc
    declarations: list


@dataclass
class Page:
    section: str
    served: list
    shared: list  # Docs that cover this page and others
    code: str     # its declarations and macros
    include: str = "weft/weft.h"

    def declarations(self):
        return [declaration for served in self.served for declaration in served.declarations]


@dataclass
class Header:
    head: Doc
    pages: list


def plain_lines(comment):
    """The lines of a comment without its stars."""
    body = comment.strip()[2:-2]
    first, *others = body.split("\n")
    return [first.strip()] + [re.sub(r"^\s*\* ?", "", line).rstrip() for line in others]


def take_fields(text):
    """(what is left of the text, errors, threads): fields stand last, thread words are sentences anywhere."""
    errors = threads = ""
    both = re.search(r"(?:^|(?<=[.)] ))Errors and threads: (.*)", text)
    if both:
        return text[: both.start()].strip(), both.group(1), both.group(1)
    for name in ("Threads", "Errors"):
        found = re.search(rf"(?:^|(?<=[.)] )){name}: (.*)", text)
        if found:
            text, said = text[: found.start()].strip(), found.group(1).strip()
            errors, threads = (said, threads) if name == "Errors" else (errors, said)
    sentence = r"(?:^|(?<=\. ))Thread-(?:safe|bound)\b.*?\.(?= |$)"
    if not threads:
        threads = " ".join(re.findall(sentence, text) + re.findall(sentence, errors))
        text, errors = (re.sub(sentence + " ?", "", said).strip() for said in (text, errors))
    return text, errors, threads[:1].upper() + threads[1:]


def understood(lines, is_head=False):
    """The Doc of a comment's lines. An item is `names  what they are`, its other lines are indented."""
    blocks, paragraph = [], []

    def close():
        if paragraph:
            blocks.append(("text", " ".join(paragraph)))
        paragraph.clear()

    for line in lines:
        item = re.match(r"(\w+(?:, \w+)*)  +(\S.*)", line)
        label = re.match(r"([A-Z]\w+): (.*)", line) if is_head else None
        if item or label:
            close()
            blocks.append(("item", *(item or label).groups()))
        elif line.startswith("    ") and blocks and blocks[-1][0] == "item" and not paragraph:
            blocks[-1] = (*blocks[-1][:2], blocks[-1][2] + " " + line.strip())
        elif is_head and line and blocks and blocks[-1][0] == "item":
            blocks[-1] = (*blocks[-1][:2], blocks[-1][2] + " " + line)
        elif line:
            paragraph.append(line.strip())
        else:
            close()
    close()
    doc = Doc()
    for block in blocks:
        if block[0] == "text" and not is_head:
            text, errors, threads = take_fields(block[1])
            doc.errors, doc.threads = doc.errors or errors, doc.threads or threads
            block = ("text", text) if text else None
        if block:
            doc.blocks.append(block)
    # Comments behind a declaration begin in lower case.
    if doc.blocks and doc.blocks[0][0] == "text":
        doc.blocks[0] = ("text", doc.blocks[0][1][:1].upper() + doc.blocks[0][1][1:])
    return doc


def heading(lines):
    """(title, Doc of the rest) if the comment is a heading, else None."""
    whole = re.fullmatch(r"---- (.*?) ?----", " ".join(line for line in lines if line))
    if not whole:
        return None
    title, _, rest = re.match(r"([^.:]*)([.:]?) ?(.*)", whole.group(1)).groups()
    return title.strip(), understood([rest[:1].upper() + rest[1:]])


def prototype(returns, name, parameters):
    """Broken between parameters, which stand below each other."""
    start = f"{returns} {name}("
    words = start.replace(" ", "\0") + ", ".join(one.replace(" ", "\0") for one in parameters) + ");"
    lines = textwrap.wrap(words, 78, subsequent_indent=" " * len(start), break_long_words=False)
    return "\n".join(lines).replace("\0", " ")


def declared(code):
    """The Declaration of a statement; None for what has no name of Weft's, such as a forward declaration."""
    code = re.sub(r"^WEFT_API ", "", code)
    bare = " ".join(re.sub(r"/\*.*?\*/", " ", code, flags=re.S).split())
    function = re.fullmatch(r"([\w\s*]+?)\s*\b(weft\w+)\((.*)\);", bare)
    if function:
        returns, name, inside = function.groups()
        parameters = [one.strip() for one in inside.split(",")]
        parts = [re.fullmatch(r"(.*?[\s*])(\w+)(\[\w*\])?", one) for one in parameters if one != "void"]
        if not all(parts):
            return None
        named = [(part.group(1).strip() + ("*" if part.group(3) else ""), part.group(2)) for part in parts]
        return Declaration(name, prototype(returns, name, parameters), True, returns, named)
    named = re.search(r"\(\*(weft\w+)\)|\b(weft\w+)(?:\[\w+\])?;$", bare)
    if not bare.startswith("typedef") or not named:
        return None
    return Declaration(named.group(1) or named.group(2), code, False)


def tokens(text):
    """("blank" | "comment" | "directive" | "code", its text) in their order."""
    lines = iter(text.split("\n"))
    for line in lines:
        whole = line
        if not line.strip():
            yield "blank", ""
        elif line.startswith("/*"):
            while "*/" not in whole:
                whole += "\n" + next(lines)
            yield "comment", whole
        elif line.startswith("#"):
            while whole.endswith("\\"):
                whole += "\n" + next(lines)
            yield "directive", whole
        elif not re.match(r'extern "C"|\}$', line):
            def bare():
                return re.sub(r"/\*.*?(\*/|$)", "", whole, flags=re.S).strip()
            while not bare().endswith(";") or bare().count("{") != bare().count("}"):
                whole += "\n" + next(lines)
            yield "code", whole


class Reader:
    """Puts the tokens of a header together to pages."""

    def __init__(self, section):
        self.head, self.pages, self.section, self.shared = None, [], section, []

    def paragraph(self, tokens):
        """What stands between two empty lines."""
        kinds = {kind for kind, _ in tokens}
        if "comment" in kinds and self.head is None:
            self.head = understood(plain_lines(tokens[0][1]), is_head=True)
        elif kinds == {"comment"}:
            for _, comment in tokens:
                self.standing_alone(plain_lines(comment))
        elif "code" in kinds:
            self.pages.append(self.page(tokens))

    def standing_alone(self, lines):
        titled = heading(lines)
        if titled:
            self.section, self.shared = titled[0], []
        self.shared = self.shared + [titled[1] if titled else understood(lines)]

    def page(self, tokens):
        served, code = [Served(Doc(), [])], []
        for number, (kind, token) in enumerate(tokens):
            if kind == "directive":
                code.append(token)
            elif kind == "comment":
                lines = plain_lines(token)
                titled = heading(lines)
                if titled and tokens[number + 1][0] == "comment":
                    self.standing_alone(lines)
                    continue
                if titled:
                    self.section, self.shared = titled[0], []
                served.append(Served(titled[1] if titled else understood(lines), []))
            else:
                declaration = declared(token)
                if not declaration:
                    raise ValueError(f"this declaration is not understood: {token}")
                trailing = re.search(r";\s*(/\*.*\*/)$", token)
                if trailing:
                    served.append(Served(understood(plain_lines(trailing.group(1))), []))
                served[-1].declarations.append(declaration)
                code.append(declaration.text)
        return Page(self.section, [one for one in served if one.declarations], self.shared, "\n".join(code))


def parse(text, section):
    """The Header; pages before its first heading belong to `section`."""
    reader, paragraph = Reader(section), []
    for kind, token in tokens(text + "\n\n"):
        if kind != "blank":
            paragraph.append((kind, token))
        elif paragraph:
            reader.paragraph(paragraph)
            paragraph = []
    return Header(reader.head or Doc(), reader.pages)
