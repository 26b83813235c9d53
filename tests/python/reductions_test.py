"""Reductions of Python functions, and sums of scaled contributions."""
import unittest

import numpy as np
import weft
from ranks import errors_of_ranks, on_ranks


def multiply(left, right, result):
    np.multiply(np.asarray(left), np.asarray(right), out=np.asarray(result))


class Functions(unittest.TestCase):
    def test_a_function_reduces_arrays(self):
        def body(comm):
            with comm.reduction(multiply, np.float32) as product:
                return comm.all_reduce(np.full(1000, comm.rank + 2, np.float32), product)

        for x in on_ranks(3, body):
            np.testing.assert_array_equal(x, np.full(1000, 24))

    def test_operands_come_in_rank_order_if_the_function_does_not_commute(self):
        def join(left, right, result):
            # An affine map (a, b) behind another one; elements are bytes of a pair in an int32.
            for i in range(len(left)):
                a, b = left[i] & 0xFFFF, left[i] >> 16
                c, d = right[i] & 0xFFFF, right[i] >> 16
                result[i] = (a * c) % 251 | (b * c + d) % 251 << 16

        def body(comm):
            op = comm.reduction(join, "int32", commutative=False)
            return comm.all_reduce(np.array([(comm.rank + 2) | (comm.rank + 1) << 16], np.int32), op)[0]

        expected = 2 | 1 << 16
        for rank in (1, 2):
            result = np.zeros(1, np.int32)
            join(np.array([expected]), np.array([(rank + 2) | (rank + 1) << 16]), result)
            expected = int(result[0])
        self.assertEqual(on_ranks(3, body), [expected] * 3)

    def test_an_exception_in_the_function_is_the_cause_of_the_error(self):
        def fail(left, right, result):
            raise KeyError("from the function")

        errors = errors_of_ranks(2, lambda comm: comm.all_reduce(np.ones(4), comm.reduction(fail, "float64")))
        self.assertTrue(any(isinstance(error.__cause__, KeyError) for error in errors), errors)
        for error in errors:
            self.assertIsInstance(error, weft.Error)
            self.assertEqual(error.id, "usage.function-threw")
            self.assertIn("from the function", str(error))

    def test_a_view_that_outlives_the_call_is_released_or_an_error(self):
        kept = []

        def keep(left, right, result):
            kept.append(left)
            multiply(left, right, result)

        on_ranks(2, lambda comm: comm.all_reduce(np.ones(4), comm.reduction(keep, "float64")))
        for view in kept:
            with self.assertRaises(ValueError):
                view[0]

    def test_a_function_runs_in_a_stream(self):
        def body(comm):
            with weft.Stream() as stream:
                op = comm.reduction(multiply, "float64")
                x = comm.all_reduce(np.full(4, 3.0), op, stream=stream)
                del op  # the stream keeps it
                stream.wait()
                return x[0]

        self.assertEqual(on_ranks(2, body), [9, 9])

    def test_a_closed_reduction_is_refused(self):
        with weft.init() as comm:
            op = comm.reduction(multiply, "float32")
            op.close()
            op.close()
            with self.assertRaises(weft.InvalidUsageError) as caught:
                comm.all_reduce(np.ones(1, np.float32), op)
            self.assertEqual(caught.exception.id, "python.closed")

    def test_the_dtype_of_the_arrays_must_be_the_reductions(self):
        with weft.init() as comm:
            with self.assertRaises(weft.InvalidArgumentError):
                comm.all_reduce(np.ones(1), comm.reduction(multiply, "float32"))


class Scaled(unittest.TestCase):
    def test_each_rank_has_its_factor(self):
        def body(comm):
            return comm.all_reduce(np.ones(3), comm.scaled_sum(np.array([comm.rank + 0.5])))

        for x in on_ranks(2, body):
            np.testing.assert_array_equal(x, np.full(3, 2.0))

    def test_a_factor_is_one_element(self):
        with weft.init() as comm:
            with self.assertRaises(weft.InvalidArgumentError) as caught:
                comm.scaled_sum(np.ones(2))
            self.assertEqual(caught.exception.id, "python.size")


if __name__ == "__main__":
    unittest.main()
