"""structure.py: the size of classes, units and folders, and cycles between units. tidy.py compares it with known.txt."""
import re
from pathlib import Path

LIBRARY = ("src/", "algorithms/", "topology/", "transports/")
UNITS_OF = LIBRARY + ("tools/", "perf/")
PUBLIC_FUNCTIONS_MOST = 25
FIELDS_MOST = 15
UNIT_LINES_MOST = 400
FOLDER_LINES_MOST = 4000

NO_MEMBER = re.compile(r"^(?:using|typedef|friend|static_assert|enum|union)\b")
CLASS_HEAD = re.compile(r"\b(?:class|struct)\s+(?:\[\[[^\]]*\]\]\s*|alignas\s*\([^)]*\)\s*)*([A-Za-z_][\w:]*)(?!\s*>)[^;(]*$")


def code_of(text):
    """Without comments, preprocessor lines, and what is in quotation marks."""
    pattern = r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\''
    text = re.sub(pattern, lambda m: '""' if m.group(0)[0] in "\"R" else " " if m.group(0)[0] == "/" else "0", text, flags=re.S)
    return re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", "", text, flags=re.M)


def statements(code):
    """(head, body) of each statement at this level: the body is what stands in braces, or None where it ends with ;."""
    depth = parens = start = 0
    opened = 0
    for at, letter in enumerate(code):
        if letter in "([":
            parens += 1
        elif letter in ")]":
            parens = max(0, parens - 1)
        elif letter == "{":
            if depth == 0:
                opened = at
            depth += 1
        elif letter == "}":
            depth = max(0, depth - 1)
            if depth == 0 and parens == 0:
                head = code[start:opened].strip()
                # An initializer of a field ends with its semicolon, as a class does.
                rest = code[at + 1 : at + 200].lstrip()
                if rest[:1] in (";", ",", "{", "=") or (rest[:1] == ":" and rest[:2] != "::"):
                    if CLASS_HEAD.search(head) and "(" not in head:
                        yield head, code[opened + 1 : at]
                        start = at + 1
                    continue
                yield head, code[opened + 1 : at]
                start = at + 1
        elif letter == ";" and depth == 0 and parens == 0:
            head = code[start:at].strip()
            if head:
                yield head, None
            start = at + 1


def outside_brackets(text):
    """The text at the top level alone."""
    kept, depth = [], 0
    for letter in text.replace("->", "  "):
        if letter in "(<[{":
            if depth == 0:
                kept.append(letter)
            depth += 1
        elif letter in ")>]}":
            depth = max(0, depth - 1)
        elif depth == 0:
            kept.append(letter)
    return "".join(kept)


def members(kind, body):
    """(public functions, fields) of a class."""
    functions = fields = 0
    public = kind == "struct"
    for head, block in statements(body):
        while label := re.match(r"(public|protected|private)\s*:(?!:)\s*", head):
            public = label.group(1) == "public"
            head = head[label.end() :]
        head = re.sub(r"^template\s*<[^<>]*(?:<[^<>]*>[^<>]*)*>\s*", "", head)
        if not head or NO_MEMBER.match(head) or (CLASS_HEAD.search(head) and (block is not None or re.fullmatch(r"(?:class|struct)\s+\w+", head))):
            continue
        flat = outside_brackets(head)
        call, equals = flat.find("("), flat.find("=")
        if "operator" in flat or (call >= 0 and (equals < 0 or call < equals)):
            functions += public and "= delete" not in head
        elif not re.match(r"(?:static\s+)?(?:inline\s+)?(?:static\s+)?constexpr\b|static\b", flat):
            fields += 1 + flat.count(",")
    return functions, fields


def classes(code):
    """(name, kind, body) of each class, nested ones too."""
    for head, body in statements(code):
        if body is None:
            continue
        if re.match(r"(?:inline\s+)?namespace\b", head) or re.match(r'extern\s*""$', head):
            yield from classes(body)
            continue
        found = CLASS_HEAD.search(re.sub(r"^template\s*<.*>\s*(?=class|struct)", "", head, flags=re.S))
        if found and "=" not in head.split(found.group(0))[0]:
            name = found.group(1).split("::")[-1]
            yield name, re.search(r"\b(class|struct)\b", found.group(0)).group(1), body
            yield from classes(re.sub(r"\b(?:public|protected|private)\s*:(?!:)", "", body))


def defined_members(code):
    """The classes of which functions are defined outside."""
    for head, body in statements(code):
        if body is None:
            continue
        if re.match(r"(?:inline\s+)?namespace\b", head):
            yield from defined_members(body)
            continue
        found = re.match(r"[^()=]*?\b(\w+)(?:<[^<>]*>)?::~?(?:operator\b[^(]*|\w+)\s*\(", head)
        if found:
            yield found.group(1)


def unit_of(file):
    return str(Path(file).with_suffix(""))


def cycles(edges):
    """The nodes that reach themselves: Tarjan's strongly connected components, without recursion."""
    index, low, on_stack, stack, found = {}, {}, set(), [], set()
    for root in edges:
        if root in index:
            continue
        work = [(root, iter(sorted(edges[root])))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, targets = work[-1]
            for target in targets:
                if target not in index:
                    index[target] = low[target] = len(index)
                    stack.append(target)
                    on_stack.add(target)
                    work.append((target, iter(sorted(edges.get(target, ())))))
                    break
                if target in on_stack:
                    low[node] = min(low[node], index[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    part = []
                    while True:
                        part.append(stack.pop())
                        on_stack.discard(part[-1])
                        if part[-1] == node:
                            break
                    if len(part) > 1:
                        found.update(part)
    return found


def findings(tree):
    """(rule, what, how much) of a Tree of tidy.py."""
    files = [file for file in tree.files if file.startswith(UNITS_OF)]
    edges = {unit_of(file): set() for file in files}
    unit_lines, folder_lines = {}, {}
    for file in files:
        unit, lines = unit_of(file), tree.text[file].count("\n")
        # A table (.def) is data, a row for each thing: it grows with its rows and hides no second noun.
        if not file.endswith(".def"):
            unit_lines[unit] = unit_lines.get(unit, 0) + lines
            if file.startswith(LIBRARY):
                folder = str(Path(file).parent)
                folder_lines[folder] = folder_lines.get(folder, 0) + lines
        edges[unit].update(unit_of(target) for _, _, target in tree.includes[file] if target and unit_of(target) in edges and unit_of(target) != unit)
    for unit in sorted(cycles(edges)):
        yield "unit-cycle", unit, 1
    for unit, lines in unit_lines.items():
        if lines > UNIT_LINES_MOST:
            yield "unit-lines", unit, lines
    for folder, lines in folder_lines.items():
        if lines > FOLDER_LINES_MOST:
            yield "folder-lines", folder, lines

    code = {file: code_of(tree.text[file]) for file in files if file.startswith(LIBRARY)}
    defined = {file: set(defined_members(text)) for file, text in code.items() if file.endswith((".cpp", ".cu"))}
    for file, text in code.items():
        for name, kind, body in classes(text):
            functions, fields = members(kind, body)
            if functions > PUBLIC_FUNCTIONS_MOST:
                yield "class-functions", f"{file}:{name}", functions
            if fields > FIELDS_MOST:
                yield "class-fields", f"{file}:{name}", fields
            if file.endswith((".h", ".hpp", ".cuh")):
                sources = [source for source, names in defined.items()
                           if name in names and any(target == file for _, _, target in tree.includes[source])]
                if len(sources) > 1:
                    yield "class-sources", f"{file}:{name}", len(sources)
