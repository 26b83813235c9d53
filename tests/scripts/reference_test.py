#!/usr/bin/env python3
# The reference is made from a header's comments. Tested: the functions that a comment describes, and the parts that it
# must have.
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

HEADER = """/* lib.h: an interface: all of it.
 * Arguments: `comm` is alive.
 * Results: 0 is good. */
#ifndef LIB
#define LIB

/* ---- Making. Thread-safe. ---- */

/* Makes one of `size` bytes. Errors: weftA (null). */
WEFT_API weftResult_t weftMake(weftComm_t* comm, size_t size);
/* The same by name; `label` may be NULL. */
WEFT_API weftResult_t weftMakeNamed(weftComm_t* comm, size_t size,
                                    const char* label);

/* ---- Moving ---- */

/* Moves `count` elements: fast.
 * from, to  host memory; they
 *           do not overlap
 * Errors: weftA (more than 1.5 of it), weftB.
 * Threads: thread-bound. */
WEFT_API weftResult_t weftMove(const void* from, void* to, size_t count, weftComm_t comm);

/* All others are in host memory. Errors and threads: as weftMove. */

/* Turns `what`, `count` elements. weftSpin: for ever. */
WEFT_API weftResult_t weftTurn(void* what, size_t count, weftComm_t comm);
WEFT_API weftResult_t weftSpin(void* what, size_t count, weftComm_t comm);

/* ---- Ends: of everything. Thread-bound. Errors: weftB. ---- */
WEFT_API weftResult_t weftEnd(void);
#endif
"""

TYPES = """/* types.h: numbers. */

/* What a call ends with. */
typedef enum {
    weftGood = 0, /* nothing; else */
    weftBad = 1
} weftResult_t;

typedef struct weftComm* weftComm_t; /* a group of ranks */
"""

MAKERS = ("weftMake", "weftMakeNamed")


def read(*texts):
    return [header.parse(text, "Types") for text in texts]


def page(name, headers):
    entry = next(each for each in document.entries(headers) if name in each.names)
    return entry, dict(entry.sections)


class ReferenceTest(unittest.TestCase):
    def objections(self, old, new):
        self.assertEqual(HEADER.count(old), 1)
        return list(completeness.objections(read(HEADER.replace(old, new), TYPES)))

    def test_a_complete_header_has_no_objections(self):
        self.assertEqual(list(completeness.objections(read(HEADER, TYPES))), [])

    def test_a_comment_serves_all_declarations_up_to_the_next(self):
        entry, sections = page("weftSpin", read(HEADER, TYPES))
        self.assertEqual(entry.names, ["weftTurn", "weftSpin"])
        self.assertEqual(entry.summary, "Turns `what`, `count` elements")
        self.assertIn(("text", "All others are in host memory."), sections["DESCRIPTION"])

    def test_comments_of_one_paragraph_are_one_page_with_a_part_for_each(self):
        entry, sections = page("weftMake", read(HEADER, TYPES))
        self.assertEqual(entry.names, ["weftMake", "weftMakeNamed"])
        self.assertEqual([words for kind, words, *_ in sections["DESCRIPTION"] if kind == "title"], entry.names)

    def test_items_errors_and_threads_are_distinguished(self):
        _, sections = page("weftMove", read(HEADER, TYPES))
        self.assertIn(("item", "from, to", "host memory; they do not overlap"), sections["DESCRIPTION"])
        self.assertEqual(sections["ERRORS"], [("text", "weftA (more than 1.5 of it), weftB.")])
        self.assertEqual(sections["THREADS"], [("text", "Thread-bound.")])

    def test_what_is_said_of_another_function_is_shown_where_it_is_referred_to(self):
        _, sections = page("weftTurn", read(HEADER, TYPES))
        self.assertEqual(sections["ERRORS"], [("item", "As weftMove", "weftA (more than 1.5 of it), weftB.")])

    def test_a_heading_directly_above_functions_is_their_comment(self):
        entry, sections = page("weftEnd", read(HEADER, TYPES))
        self.assertEqual(sections["DESCRIPTION"], [("text", "Of everything.")])
        self.assertEqual(sections["ERRORS"], [("text", "weftB.")])

    def test_a_type_is_explained_above_it_or_behind_it(self):
        entry, sections = page("weftComm_t", read(HEADER, TYPES))
        self.assertEqual(entry.summary, "A group of ranks")
        self.assertIn("weftBad = 1\n} weftResult_t;", page("weftResult_t", read(HEADER, TYPES))[1]["SYNOPSIS"][0][1])

    def test_every_gap_is_an_objection(self):
        turned = "/* Turns `what`, `count` elements. weftSpin: for ever. */\n"
        self.assertEqual(self.objections(turned, ""),
                         [f"{name}: no comment says what it is: write one above it" for name in ("weftTurn", "weftSpin")])
        self.assertEqual(self.objections("; `label` may be NULL", ""),
                         ["weftMakeNamed: nothing is said of its parameter label: name it"])
        self.assertEqual(self.objections(" of `size` bytes", " of `size`"),
                         [f"{name}: in which unit size counts is not said: elements or bytes" for name in MAKERS])
        self.assertEqual(self.objections("from, to  host memory; they", "from, to  what is moved; they"),
                         [f"weftMove: where {name} lies is not said: host or device memory" for name in ("from", "to")])

    def test_errors_and_thread_words_may_not_be_left_out(self):
        def begins(old, new):
            return [": ".join(line.split(": ")[:2]) for line in self.objections(old, new)]

        self.assertEqual(begins(" Errors: weftA (null).", ""), [f"{name}: nothing is said of errors" for name in MAKERS])
        self.assertEqual(begins("\n * Threads: thread-bound.", ""), ["weftMove: no thread word"])
        self.assertEqual(begins("Thread-safe. ----", "----"), [f"{name}: no thread word" for name in MAKERS])
        unknown = "refers to weftMoved, which is no function of these headers"
        self.assertEqual(begins("as weftMove", "as weftMoved"), [f"{name}: {unknown}" for name in ("weftTurn", "weftSpin")])

    def test_what_the_head_says_of_arguments_counts_everywhere(self):
        functions = (*MAKERS, "weftMove", "weftTurn", "weftSpin")
        self.assertEqual(self.objections(" * Arguments: `comm` is alive.\n", ""),
                         [f"{name}: nothing is said of its parameter comm: name it" for name in functions])

    def test_arrays_are_parameters_and_pointers_to_functions_want_a_name(self):
        one = header.declared("WEFT_API weftResult_t weftV(const size_t counts[], void** handle);")
        self.assertEqual(one.parameters, [("const size_t*", "counts"), ("void**", "handle")])
        self.assertEqual(one.text, "weftResult_t weftV(const size_t counts[], void** handle);")
        self.assertIsNone(header.declared("WEFT_API weftResult_t weftV(int (*body)(int));"))
        self.assertEqual(header.declared("typedef void (*weftBody_t)(void* in, int n);").name, "weftBody_t")

    def test_a_declaration_that_is_not_understood_is_an_error(self):
        with self.assertRaisesRegex(ValueError, "not understood"):
            read(HEADER.replace("/* Turns", "struct nothing;\n/* Turns"))

    def test_roff_keeps_every_character(self):
        man = render.Man({"weftMove": "weftMove"}, "1.2.3")
        blocks = [("text", ".so \\n `p` of weftMove, ^not weftX"), ("code", "'a'\n.b;")]
        entry = document.Entry(["weftX"], "it's a-b", [("DESCRIPTION", blocks)])
        text = man.page(entry)
        self.assertIn("weftX \\- it\\(aqs a\\-b\n", text)
        self.assertIn("\\&.so \\en \\fBp\\fR of \\fBweftMove\\fR(3), \\(hanot \\fBweftX\\fR\n", text)
        self.assertIn("\\(aqa\\(aq\n\\&.b;\n", text)

    def test_each_name_has_a_manual_page(self):
        entries = document.entries(read(HEADER, TYPES))
        files = dict(file for entry in entries for file in render.Man({}, "1").files(entry))
        self.assertEqual(files["weftSpin.3"], ".so man3/weftTurn.3\n")
        for name in ("weft", "weftMake", "weftMove", "weftTurn", "weftEnd", "weftResult_t", "weftComm_t"):
            self.assertTrue(files[name + ".3"].startswith(f'.TH "{name}" 3 '))

    def test_markdown_links_the_pages(self):
        entries = document.entries(read(HEADER, TYPES))
        page_of = {name: entry.names[0] for entry in entries for name in entry.names}
        files = dict(file for entry in entries for file in render.Markdown(page_of, "1").files(entry))
        line = "- [`weftTurn`](weftTurn.md), [`weftSpin`](weftTurn.md): Turns `what`, `count` elements."
        self.assertIn(line, files["weft.md"])

    def test_one_page_links_its_sections(self):
        entries = document.entries(read(HEADER, TYPES))
        page_of = {name: entry.names[0] for entry in entries for name in entry.names}
        page = render.Page(page_of, "1").whole(entries)
        names = next(", ".join(entry.names) for entry in entries if "weftSpin" in entry.names)
        anchor = names.lower().replace(",", "").replace(" ", "-")
        self.assertIn(f"\n## {names}\n", page)
        self.assertIn(f"- [`weftTurn`](#{anchor}), [`weftSpin`](#{anchor}): Turns `what`, `count` elements.", page)

    def test_a_page_that_does_not_fit_is_reported(self):
        with tempfile.TemporaryDirectory() as place:
            headers = [str(Path(place) / name) for name in ("a.h", "b.h")]
            for path, text in zip(headers, (HEADER, TYPES)):
                Path(path).write_text(text)
            page = str(Path(place) / "api.md")
            tool = [sys.executable, "-B", reference.__file__, *headers]
            self.assertEqual(subprocess.run([*tool, "--page", page]).returncode, 0)
            self.assertEqual(subprocess.run([*tool, "--check-page", page]).returncode, 0)
            Path(page).write_text("old")
            ended = subprocess.run([*tool, "--check-page", page], stdout=subprocess.PIPE, text=True)
            self.assertEqual(ended.returncode, 1)
            self.assertIn("does not fit", ended.stdout)

    def test_a_folder_keeps_other_files_and_loses_pages_of_removed_names(self):
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place) / "man3"
            reference.write(folder, {"weftA.3": "a", "weftB.3": "b"}, ".3")
            (folder / "notes").mkdir()
            (folder / "other.3").write_text("other")
            reference.write(folder, {"weftA.3": "new"}, ".3")
            self.assertEqual(sorted(path.name for path in folder.iterdir()), ["notes", "other.3", "weftA.3"])
            self.assertEqual((folder / "weftA.3").read_text(), "new")
            self.assertGreaterEqual(folder.stat().st_mtime_ns, (folder / "weftA.3").stat().st_mtime_ns)


if __name__ == "__main__":
    sys.path.insert(0, sys.argv.pop(1))
    import completeness
    import document
    import header
    import reference
    import render

    unittest.main()
