"""weft.train.Stragglers: scores of slow ranks, and errors."""
import math
import unittest

import weft
from ranks import on_ranks


class Stragglers(unittest.TestCase):
    def test_all_ranks_get_the_golden_scores(self):
        def body(comm):
            with weft.train.Stragglers(comm, interval_steps=2, threshold=0) as stragglers:
                seconds = [1, 1, 2, 1.25][comm.rank]
                self.assertFalse(stragglers.step(seconds))
                with self.assertRaises(weft.Error):
                    stragglers.scores()
                self.assertTrue(stragglers.step(seconds))
                self.assertEqual(stragglers.scores(), [1, 1, 0.5, 0.8])
                stragglers.step(2 * seconds)
                stragglers.report()
                self.assertEqual(stragglers.scores("own"), [0.5] * 4)
                with stragglers.measured():
                    pass
                stragglers.step(0)
                self.assertLessEqual(max(stragglers.scores()), 1)
                self.assertFalse(any(math.isnan(score) for score in stragglers.scores()))

        on_ranks(4, body)

    def test_wrong_values_are_errors(self):
        def body(comm):
            with self.assertRaises(weft.Error):
                weft.train.Stragglers(comm, threshold=2 if comm.rank else 0.5)
            with self.assertRaises((TypeError, RuntimeError, weft.Error)):
                weft.train.Stragglers(comm, interval="a" if comm.rank else 60.0)
            with weft.train.Stragglers(comm, interval_steps=1) as stragglers:
                if comm.rank == 0:
                    with self.assertRaises(weft.Error) as caught:
                        stragglers.step(-1)
                    self.assertEqual(caught.exception.id, "argument.value")
                else:
                    self.assertTrue(stragglers.step(1))
                with self.assertRaises(weft.Error):
                    stragglers.scores("slowest")

        on_ranks(2, body)


if __name__ == "__main__":
    unittest.main()
