# completeness.py: checks that a public function's comment is complete: the effect, each parameter, the unit of a size,
# the memory space of a buffer, errors, threads. A comment that starts with "The same" adds to the one above it.
# Headings and comments that cover several pages count for each page.
import re

UNITS = {"elements", "bytes"}
MEMORY = {"memory", "host", "device"}


def objections(headers):
    pages = [page for header in headers for page in header.pages]
    functions = {one.name for page in pages for one in page.declarations() if one.is_function}
    labelled = [block for header in headers for block in header.head.blocks if block[0] == "item"]
    anywhere = {word for _, label, text in labelled if label == "Arguments" for word in re.findall(r"\w+", text)}
    for page in pages:
        for number, served in enumerate(page.served):
            first = str(served.doc.blocks[0][-1]) if served.doc.blocks else ""
            docs = [served.doc, *page.shared]
            if first.startswith("The same") and number > 0:
                docs.append(page.served[number - 1].doc)
            for declaration in served.declarations:
                for objection in of_one(declaration, served.doc, docs, anywhere, functions):
                    yield f"{declaration.name}: {objection}"


def of_one(declaration, own, docs, anywhere, functions):
    if not own.blocks:
        yield "no comment says what it is: write one above it"
        return
    if not declaration.is_function:
        return
    words = set().union(*(doc.words() for doc in docs))
    for kind, name in declaration.parameters:
        if name not in words | anywhere:
            yield f"nothing is said of its parameter {name}: name it"
        if re.fullmatch(r"(const )?size_t\*?", kind) and not words & UNITS:
            yield f"in which unit {name} counts is not said: elements or bytes"
        if re.fullmatch(r"(const )?void\*", kind) and not words & MEMORY:
            yield f"where {name} lies is not said: host or device memory"
    errors, threads = (" ".join(getattr(doc, which) for doc in docs).strip() for which in ("errors", "threads"))
    if not errors and declaration.returns == "weftResult_t":
        yield "nothing is said of errors: `Errors: ...` ends a comment, or `Errors and threads: as ...`"
    if not threads:
        yield "no thread word: Thread-safe or Thread-bound as a sentence, or `Threads: ...`"
    for other in dict.fromkeys(re.findall(r"\b(?:as|of) (weft[A-Z]\w*)", errors + " " + threads)):
        if other not in functions:
            yield f"refers to {other}, which is no function of these headers"
