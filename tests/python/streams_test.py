"""Host streams: queued calls, their arrays and their errors."""
import gc
import unittest
import weakref

import numpy as np
import weft
from ranks import on_ranks


class Streams(unittest.TestCase):
    def test_a_queued_call_is_done_after_wait(self):
        def body(comm):
            with weft.Stream() as stream:
                x = comm.all_reduce(np.ones(1000), stream=stream)
                stream.wait()
                self.assertTrue(stream.done())
                return x[0]

        self.assertEqual(on_ranks(2, body), [2, 2])

    def test_the_stream_holds_arrays_until_the_call_is_done(self):
        comms = weft.init_all(2)
        stream = weft.Stream()
        memory = bytearray(8)
        comms[0].all_reduce(memory, stream=stream)
        mark = stream.mark()
        self.assertFalse(stream.done(mark))
        with self.assertRaises(BufferError):
            memory.append(1)
        comms[1].all_reduce(bytearray(8))
        stream.wait(mark)
        memory.append(1)
        stream.close()
        with self.assertRaises(weft.InvalidUsageError) as caught:
            comms[0].barrier(stream=stream)
        self.assertEqual(caught.exception.id, "python.closed")

    def test_temporaries_live_as_long_as_their_call(self):
        def body(comm):
            out = np.zeros((20, 1000))
            with weft.Stream() as stream:
                for row in range(20):
                    comm.all_reduce(np.full(1000, float(row)), out=out[row], stream=stream)
                    gc.collect()
                stream.wait()
            return out

        for out in on_ranks(2, body):
            np.testing.assert_array_equal(out[:, 0], 2 * np.arange(20))

    def test_a_wait_without_progress_times_out_and_may_be_repeated(self):
        comms = weft.init_all(2)
        with weft.Stream() as stream:
            x = np.ones(1)
            comms[0].all_reduce(x, stream=stream)
            with self.assertRaises(weft.TimeoutError) as caught:
                stream.wait(timeout_ms=120)
            self.assertEqual(caught.exception.id, "timeout.stream")
            comms[1].all_reduce(np.ones(1))
            stream.wait()
            self.assertEqual(x[0], 2)

    def test_the_error_of_a_queued_call_is_raised_once(self):
        def body(comm):
            stream = weft.Stream()
            comm.all_reduce(np.zeros(1 + comm.rank), stream=stream)
            with self.assertRaises(weft.MismatchError):
                stream.wait()
            stream.wait()
            stream.close()

        on_ranks(2, body)

    def test_a_stream_that_is_never_waited_for_forgets_calls_that_are_done(self):
        with weft.init() as comm, weft.Stream() as stream:
            x = np.ones(1)
            gone = weakref.ref(x)
            comm.all_reduce(x, stream=stream)
            del x
            self.assertIsNotNone(gone())
            # Without forgetting, this never ends.
            while gone() is not None:
                comm.all_reduce(np.ones(1), stream=stream)

    def test_a_group_goes_to_its_stream(self):
        def body(comm):
            x, y = np.ones(1), np.ones(1)
            with weft.Stream(priority=3) as stream:
                with weft.group():
                    comm.all_reduce(x, stream=stream)
                    comm.all_reduce(y, stream=stream)
                stream.wait()
            return x[0], y[0]

        self.assertEqual(on_ranks(2, body), [(2, 2)] * 2)

    def test_a_wrong_priority_is_refused(self):
        with self.assertRaises(weft.InvalidArgumentError):
            weft.Stream(priority=99)


if __name__ == "__main__":
    unittest.main()
