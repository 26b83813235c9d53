"""Errors are exceptions by result code, with their facts."""
import os
import re
import unittest
from pathlib import Path

import numpy as np
import weft
from ranks import errors_of_ranks


class Errors(unittest.TestCase):
    def test_different_counts_are_a_mismatch_that_names_both_ranks(self):
        for error in errors_of_ranks(2, lambda comm: comm.all_reduce(np.zeros(3 + comm.rank))):
            self.assertIsInstance(error, weft.MismatchError)
            self.assertEqual(error.id, "mismatch.count")
            self.assertEqual(error.operation, "all_reduce")
            self.assertEqual(error.sequence, 1)
            self.assertIn("[mismatch.count]", str(error))
            self.assertIn("same count", error.remedy)
            self.assertTrue(error.meaning)
            self.assertEqual(error.code, 9)

    def test_a_late_rank_is_named(self):
        comms = weft.init_all(2)
        comms[0].set_call_config(timeout_ms=200)
        with self.assertRaises(weft.TimeoutError) as caught:
            comms[0].all_reduce(np.zeros(3))
        self.assertEqual(caught.exception.id, "timeout.collective")
        self.assertEqual(caught.exception.rank, 1)
        self.assertIs(type(comms[1].async_error()), weft.TimeoutError)
        for comm in comms:
            comm.close()

    def test_all_classes_are_errors_of_weft(self):
        for each in ("InternalError", "InvalidUsageError", "RemoteError", "SystemError", "UnhandledCudaError"):
            self.assertTrue(issubclass(getattr(weft, each), weft.Error))
        self.assertTrue(issubclass(weft.InvalidArgumentError, ValueError))

    def test_every_id_of_the_library_has_a_remedy(self):
        from weft._error_texts import TEXTS

        self.assertGreater(len(TEXTS), 100)
        for identifier, (meaning, remedy) in TEXTS.items():
            self.assertTrue(meaning and remedy, identifier)

    def test_ids_of_this_package_are_none_of_the_librarys(self):
        from weft._error_texts import TEXTS
        from weft._errors import _OWN

        self.assertFalse(set(TEXTS) & set(_OWN))

    def test_ids_of_this_package_are_those_of_the_guide(self):
        from weft._errors import _OWN

        guide = Path(os.environ["GUIDE_PAGE"]).read_text()
        self.assertEqual(set(re.findall(r"python\.[\w-]+", guide)) - {"python.md"}, set(_OWN))


if __name__ == "__main__":
    unittest.main()
