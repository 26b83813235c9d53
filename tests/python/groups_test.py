"""Groups and prepared calls."""
import unittest

import numpy as np
import weft
from ranks import errors_of_ranks, on_ranks


class Groups(unittest.TestCase):
    def test_one_thread_drives_several_ranks(self):
        comms = weft.init_all(3)
        arrays = [np.full(4, rank, np.float32) for rank in range(3)]
        with weft.group():
            for comm, x in zip(comms, arrays):
                comm.all_reduce(x)
        for x in arrays:
            np.testing.assert_array_equal(x, np.full(4, 3))
        for comm in comms:
            comm.close()

    def test_messages_in_any_order_also_to_oneself(self):
        def body(comm):
            out = [np.zeros(1, np.int32) for _ in range(2)]
            with weft.group():
                for peer in range(2):
                    comm.recv(out[peer], peer)
                for peer in range(2):
                    comm.send(np.full(1, comm.rank, np.int32), peer)  # the group keeps it
            return [x[0] for x in out]

        self.assertEqual(on_ranks(2, body), [[0, 1], [0, 1]])

    def test_a_group_may_have_calls_of_several_dtypes(self):
        def body(comm):
            x, y = np.ones(3, np.float32), np.full(2, comm.rank, np.int64)
            with weft.group():
                comm.all_reduce(x)
                comm.all_reduce(y, "max")
            return x.tolist(), y.tolist()

        self.assertEqual(on_ranks(2, body), [([2, 2, 2], [1, 1])] * 2)

    def test_a_group_whose_ranks_have_different_dtypes_is_a_mismatch(self):
        def body(comm):
            with weft.group():
                comm.all_reduce(np.ones(2, np.float64))
                comm.all_reduce(np.ones(2, np.int32 if comm.rank else np.float32))

        for error in errors_of_ranks(2, body):
            self.assertIsInstance(error, weft.MismatchError)
            self.assertEqual(error.id, "mismatch.datatype")

    def test_arrays_of_an_open_group_are_held(self):
        with weft.init() as comm:
            memory = bytearray(8)
            with weft.group():
                comm.all_reduce(memory)
                with self.assertRaises(BufferError):
                    memory.append(1)
            memory.append(1)

    def test_a_failed_call_is_found_by_its_number(self):
        with weft.init() as comm:
            with weft.group():
                comm.all_reduce(np.zeros(2))
                with self.assertRaises(weft.InvalidArgumentError):
                    comm.send(np.zeros(1), 7)
            errors = weft.group.errors()
            self.assertEqual([each.call for each in errors], [1])
            self.assertEqual(errors[0].error.id, "argument.rank")

    def test_an_exception_discards_the_calls(self):
        with weft.init() as comm:
            x = np.ones(2)
            with self.assertRaises(ZeroDivisionError):
                with weft.group():
                    comm.all_reduce(x)
                    with weft.group():
                        comm.all_reduce(x)
                        1 / 0
            with weft.group():
                comm.all_reduce(x)

    def test_groups_nest(self):
        comms = weft.init_all(2)
        arrays = [np.ones(1), np.ones(1)]
        with weft.group():
            for comm, x in zip(comms, arrays):
                with weft.group():
                    comm.all_reduce(x)
        self.assertEqual([x[0] for x in arrays], [2, 2])

    def test_an_end_without_a_group_is_an_error(self):
        with self.assertRaises(weft.InvalidUsageError) as caught:
            weft.group().__exit__(None, None, None)
        self.assertEqual(caught.exception.id, "group.not-open")


class Prepared(unittest.TestCase):
    def test_prepared_calls_run_as_often_as_they_are_started(self):
        def body(comm):
            x = np.ones(1)
            with weft.prepare() as calls:
                comm.all_reduce(x)
                with self.assertRaises(weft.InvalidUsageError) as early:
                    calls.start()
            self.assertEqual(early.exception.id, "python.group")
            for _ in range(3):
                calls.start()
            calls.close()
            with self.assertRaises(weft.InvalidUsageError):
                calls.start()
            return x[0]

        self.assertEqual(on_ranks(2, body), [8, 8])

    def test_prepared_calls_hold_their_arrays(self):
        with weft.init() as comm:
            memory = bytearray(8)
            with weft.prepare() as calls:
                comm.all_reduce(memory)
            with self.assertRaises(BufferError):
                memory.append(1)
            del calls
            memory.append(1)

    def test_prepared_calls_go_to_their_stream(self):
        def body(comm):
            x = np.ones(1)
            with weft.Stream() as stream:
                with weft.prepare() as calls:
                    comm.all_reduce(x, stream=stream)
                calls.start()
                calls.start()
                stream.wait()
            return x[0]

        self.assertEqual(on_ranks(2, body), [4, 4])


if __name__ == "__main__":
    unittest.main()
