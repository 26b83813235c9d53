"""Communicators: making, splitting, shrinking, ending, and what they tell."""
import gc
import threading
import unittest
import weakref

import numpy as np
import weft
from ranks import LONG, end_job, on_ranks, run_job, start_job


class Making(unittest.TestCase):
    def test_without_a_launcher_there_is_one_rank(self):
        with weft.init() as comm:
            self.assertEqual((comm.rank, comm.size), (0, 1))
            self.assertIn("rank 0 of 1", repr(comm))
            with self.assertRaises(weft.InvalidUsageError):
                comm.device
        self.assertIn("closed", repr(comm))

    def test_an_id_joins_ranks(self):
        identifier = weft.unique_id()
        self.assertEqual(len(identifier), 128)
        sums = []

        def join(rank):
            with weft.init(rank=rank, size=2, unique_id=identifier, timeout_ms=30000) as comm:
                sums.append(comm.all_reduce(np.ones(1))[0])

        threads = [threading.Thread(target=join, args=(rank,)) for rank in range(2)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        self.assertEqual(sums, [2, 2])

    def test_rank_size_and_id_come_together(self):
        with self.assertRaises(TypeError):
            weft.init(rank=0)
        with self.assertRaises(weft.InvalidArgumentError) as caught:
            weft.init(rank=0, size=1, unique_id=b"short")
        self.assertEqual(caught.exception.id, "python.unique-id")

    def test_a_missing_rank_is_named(self):
        with self.assertRaises(weft.TimeoutError) as caught:
            weft.init(rank=0, size=2, unique_id=weft.unique_id(), init_timeout_ms=300)
        self.assertEqual(caught.exception.id, "init.rank-missing")
        self.assertIsInstance(caught.exception, TimeoutError)

    def test_a_group_makes_communicators_at_its_end(self):
        identifier = weft.unique_id()
        with weft.group():
            comms = [weft.init(rank=rank, size=2, unique_id=identifier) for rank in range(2)]
            with self.assertRaises(weft.InvalidUsageError) as caught:
                comms[0].all_reduce(np.zeros(1))
            self.assertEqual(caught.exception.id, "python.closed")
        self.assertEqual([comm.rank for comm in comms], [0, 1])
        for comm in comms:
            comm.close()


class Deriving(unittest.TestCase):
    def test_split_orders_ranks_by_key(self):
        def body(comm):
            child = comm.split(comm.rank % 2, key=-comm.rank)
            with child:
                return child.rank, child.size, child.all_reduce(np.array([comm.rank]))[0]

        self.assertEqual(on_ranks(4, body), [(1, 2, 2), (1, 2, 4), (0, 2, 2), (0, 2, 4)])

    def test_a_rank_without_a_color_gets_none(self):
        self.assertEqual(on_ranks(2, lambda comm: comm.split(None if comm.rank else 0) is None), [False, True])

    def test_shrink_leaves_ranks_out(self):
        def body(comm):
            if comm.rank == 1:
                return None
            with comm.shrink([1]) as child:
                return child.rank, child.size

        self.assertEqual(on_ranks(3, body), [(0, 2), None, (1, 2)])

    def test_survivors_of_a_dead_rank_shrink_and_continue(self):
        text = (
            "import os, sys, numpy as np, weft\n"
            "comm = weft.init()\n"
            "comm.barrier()\n"
            "if comm.rank == 1: os._exit(3)\n"
            "try:\n"
            "    comm.all_reduce(np.ones(4)); sys.exit('no error')\n"
            "except weft.RemoteError as error:\n"
            "    assert error.rank == 1, error.rank\n"
            "with comm.shrink([1], abort=True) as rest:\n"
            "    print(rest.all_reduce(np.ones(1))[0])\n"
        )
        ends = end_job(start_job(3, text))
        self.assertEqual([end[0] for end in ends], [0, 3, 0], ends)
        self.assertEqual(ends[0][1], "2.0\n")


class Ending(unittest.TestCase):
    def test_a_closed_communicator_refuses_calls(self):
        comm = weft.init()
        comm.close()
        comm.close()
        with self.assertRaises(weft.InvalidUsageError) as caught:
            comm.all_reduce(np.zeros(1))
        self.assertEqual(caught.exception.id, "python.closed")

    def test_finalize_leaves_queries_only(self):
        with weft.init() as comm:
            comm.finalize()
            self.assertEqual(comm.size, 1)
            with self.assertRaises(weft.InvalidUsageError):
                comm.all_reduce(np.zeros(1))

    def test_abort_ends_a_blocked_call_of_another_thread(self):
        comms = weft.init_all(2)
        x = np.zeros(1)
        caught = []

        def wait():
            try:
                with weft.group():
                    comms[0].send(x, 1)
                    comms[0].recv(x, 1)
            except weft.Error as error:
                caught.append(error.id)

        thread = threading.Thread(target=wait, daemon=True)
        thread.start()
        comms[1].recv(np.zeros(1), 0)  # the thread is inside the call when its message is here
        comms[0].abort()
        thread.join(LONG)
        self.assertEqual(caught, ["abort.local"])
        with self.assertRaises(weft.RemoteError) as remote:
            comms[1].all_reduce(np.zeros(1))
        self.assertEqual(remote.exception.rank, 0)
        comms[1].close()

    def test_the_end_of_a_program_leaves_in_order(self):
        text = (
            "import numpy as np, weft\n"
            "comm = weft.init()\n"
            "print(comm.all_reduce(np.ones(1))[0])\n"
        )
        self.assertEqual(run_job(2, text), ["2.0\n"] * 2)


    def test_objects_that_a_communicator_refers_to_do_not_keep_it(self):
        def with_function(comm):
            return comm.reduction(lambda left, right, result: comm.rank, "float32")

        def with_calls(comm):
            with weft.prepare() as calls:
                comm.all_reduce(bytearray(4))
            return calls

        for make in (
            with_function,
            with_calls,
            lambda comm: comm.window(bytearray(4)),
            lambda comm: comm.register(bytearray(4)),
            lambda comm: comm.scaled_sum(np.ones(1)),
        ):
            comm = weft.init()
            comm.own = make(comm)
            gone = weakref.ref(comm.own), weakref.ref(comm)
            del comm
            gc.collect()
            self.assertEqual([each() for each in gone], [None, None])


class Information(unittest.TestCase):
    def test_explain_names_the_choice(self):
        def body(comm):
            return comm.explain(1024), comm.explain(8, np.float64, collective="broadcast", root=1)

        for all_reduce, broadcast in on_ranks(2, body):
            self.assertIn("one_shot", all_reduce)
            self.assertIn("broadcast", broadcast)

    def test_call_config_is_checked_and_returns_to_the_communicators(self):
        with weft.init() as comm:
            comm.set_call_config(algo="ring", timeout_ms=1000)
            comm.all_reduce(np.zeros(4))
            comm.set_call_config()
            with self.assertRaises(weft.InvalidArgumentError):
                comm.set_call_config(algo="no_such")
            comm.set_call_config(min_blocks=2, max_blocks=4)
            with self.assertRaisesRegex(weft.InvalidArgumentError, "config.minBlocks is 5, more than config.maxBlocks"):
                comm.set_call_config(min_blocks=5, max_blocks=4)
            comm.set_call_config(block_policy="zero")
            comm.all_gather(np.zeros(4))
            with self.assertRaisesRegex(weft.InvalidArgumentError, "block_policy is 'none'"):
                comm.set_call_config(block_policy="none")
        with weft.init(min_blocks=2, max_blocks=4, launch_order_implicit=True, block_policy="default"):
            pass
        with self.assertRaisesRegex(weft.InvalidArgumentError, "config.minBlocks is 0"):
            weft.init(min_blocks=0)

    def test_memory_is_counted(self):
        with weft.init() as comm:
            self.assertGreater(comm.memory_bytes(), 0)
            self.assertEqual(comm.memory_bytes("device"), 0)
            with self.assertRaises(weft.InvalidArgumentError) as caught:
                comm.memory_bytes("stack")
            self.assertEqual(caught.exception.id, "python.value")
            self.assertIsNone(comm.async_error())

    def test_a_buffer_is_registered_and_held(self):
        with weft.init() as comm:
            memory = bytearray(4096)
            with comm.register(memory):
                with self.assertRaises(BufferError):
                    memory.append(1)
            memory.append(1)


if __name__ == "__main__":
    unittest.main()
