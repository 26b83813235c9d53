"""prose.py: the language rules that a program can see, in Markdown and in comments. tidy.py counts what it finds by file."""
import re

COMMENTED_BY_SLASHES = {".c", ".cpp", ".h", ".hpp", ".def", ".cu", ".cuh", ".inc"}
COMMENTED_BY_HASH = {".py", ".sh", ".build", ".ini", ".txt", ""}
WORDS_MOST = 30
COLUMNS_MOST = 100

SLASHES = re.compile(r"^\s*(?://+|/\*+|\*+/?)\s?(.*?)(?:\*/)?\s*$")
HASH = re.compile(r"^\s*#(?!!)\s?(.*)$")
FREE = re.compile(
    r"(?:^|(?<=[.:;] )|(?<=, and )|(?<=, but ))"
    r"(?:who|what|whoever|whose|whatever)\b(?=[^?]*$)", re.I)
# A parameter of the public header and its description, or the list of a call's errors.
PARAMETER = re.compile(r"^(?:[\w.*]+(?:, [\w.*]+)*  +\S|Errors: )")
LIST_ITEM = re.compile(r"\s*(?:[-*+]|\d+\.)\s+")


def markdown_paragraphs(text):
    """Paragraphs and list items outside code, tables, headings and quotations."""
    block, start, fenced = [], 0, False
    for number, line in enumerate(text.splitlines() + [""], 1):
        if line.lstrip().startswith(("```", "~~~")):
            fenced = not fenced
            line = ""
        prose = not fenced and line.strip() and not line.lstrip().startswith(("|", "#", ">", "<!--"))
        item = LIST_ITEM.match(line)
        if block and (not prose or item):
            yield start, " ".join(block)
            block = []
        if prose:
            start = start if block else number
            block.append(line[item.end() :].strip() if item else line.strip())


def comment_paragraphs(text, mark, parameter=None):
    """Runs of comment lines; an empty comment line or a parameter ends one."""
    block, start = [], 0
    for number, line in enumerate(text.splitlines() + [""], 1):
        found = mark.match(line)
        if block and found and parameter and parameter.match(found.group(1).strip()):
            yield start, " ".join(block)
            block = []
        if found and found.group(1).strip():
            start = start if block else number
            block.append(found.group(1).strip())
        elif block:
            yield start, " ".join(block)
            block = []


def paragraphs(suffix, text):
    if suffix == ".md":
        return markdown_paragraphs(text)
    if suffix in COMMENTED_BY_SLASHES:
        # An include or a macro is no comment; nor is `*pointer = ...`.
        lines = (line if line.lstrip().startswith(("//", "/*", "* ", "*/")) else "" for line in text.splitlines())
        return comment_paragraphs("\n".join(lines), SLASHES, PARAMETER if suffix == ".h" else None)
    return comment_paragraphs(text, HASH)


def sentences(paragraph):
    """Code in backticks counts as one word and may begin a sentence; a link counts as its text."""
    paragraph = re.sub(r"`[^`]*`", "`code`", paragraph)
    paragraph = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", paragraph)
    return re.split(r"(?<=[.!?])\s+(?=[A-Z(\"'*_`])", paragraph)


def wide_lines(text):
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith(("```", "~~~")):
            fenced = not fenced
        elif not fenced and len(line) > COLUMNS_MOST and not line.lstrip().startswith(("|", "#", "<", "[", "http")):
            yield number, line


def retired_terms(text):
    """A pattern of a list with one term a line."""
    terms = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return re.compile(r"\b(?:" + "|".join(map(re.escape, terms)) + r")\b", re.I) if terms else None


def findings(suffix, text, retired):
    """(rule, line, what) of one file."""
    if suffix == ".md":
        for number, line in wide_lines(text):
            yield "wide-line", number, line
    for number, paragraph in paragraphs(suffix, text):
        for sentence in sentences(paragraph):
            if FREE.search(sentence):
                yield "free-who", number, sentence
            if len(sentence.split()) > WORDS_MOST and not sentence.startswith("Errors: "):
                yield "long-sentence", number, sentence
            for term in retired.findall(sentence) if retired else ():
                yield "retired-term", number, f"{term}: {sentence}"
