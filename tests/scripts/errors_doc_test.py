#!/usr/bin/env python3
# The page of errors and the golden sentences are made from error.def and from the sources. Input that is not understood
# or does not fit is an error.
import sys
import unittest

ROWS = """// error.def: what it is for.
// WEFT_ERROR(name, id, result, meaning, causes, remedy): an error.

// Wrong calls
WEFT_ERROR(argument_rank, "argument.rank", weftInvalidArgument, "A rank is wrong.",
           "It was counted "
           "from 1.",
           "Count (from 0).")

// Ranks that end
WEFT_ERROR(rank_died, "rank.died", weftRemoteError, "A rank died.", "It crashed.", "Look at it.")
"""
SOURCE = """
// error::rank_died is only named here
if (rank < 0) return fail(error::argument_rank, "{}: {}", rank);
if (rank > most)
    return fail(error::argument_rank,
                "root is {}; it is a rank, "
                "0 to {}",
                rank, most);
ErrorId found = error::rank_died;
return fail(found, "it died");
"""


class ErrorsDocTest(unittest.TestCase):
    def test_every_row_becomes_a_part_of_its_section(self):
        lines = errors_doc.document(ROWS).splitlines()
        self.assertEqual([line for line in lines if line.startswith("#")],
                         ["# Errors", "## Wrong calls", "### `argument.rank`", "## Ranks that end", "### `rank.died`"])
        self.assertIn("`weftInvalidArgument`. A rank is wrong.", lines)
        self.assertIn("- Usual causes: It was counted from 1.", lines)
        self.assertIn("- What to do: Count (from 0).", lines)

    def test_a_row_that_is_not_understood_is_an_error(self):
        with self.assertRaisesRegex(ValueError, "not understood"):
            errors_doc.document(ROWS + 'WEFT_ERROR(broken, "broken", weftMismatch, "no end)\n')
        with self.assertRaisesRegex(ValueError, "not understood"):
            error_sentences.ids_of(ROWS + "WEFT_ERROR(broken)\n")

    def test_the_first_sentence_with_words_of_its_own_stands_for_an_id(self):
        made, objections = error_sentences.document(error_sentences.ids_of(ROWS), [("src/a.cpp", SOURCE)])
        self.assertEqual(made, "argument.rank: root is {}; it is a rank, 0 to {}\nrank.died: (made of parts)\n")
        self.assertEqual(objections, [])

    def test_ids_without_sites_and_sites_without_ids_are_objections(self):
        source = 'return fail(error::unheard_of, "it {}", x);\nreturn fail(weftTimeout, "late");\n'
        made, objections = error_sentences.document(error_sentences.ids_of(ROWS), [("src/a.cpp", source)])
        self.assertEqual(made, "\n")
        self.assertEqual(objections, ["src/a.cpp: error::unheard_of is no row of error.def",
                                      "src/a.cpp: a site fails with weftTimeout, not with an id",
                                      "argument.rank has no site", "rank.died has no site"])


if __name__ == "__main__":
    sys.path.insert(0, sys.argv.pop(1))
    import error_sentences
    import errors_doc

    unittest.main()
