"""Collectives and messages give what numpy computes."""
import array
import unittest

import numpy as np
import weft
from ranks import on_ranks, run_job

RANKS = 3
TYPES = ["int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64"]


def mine(rank, count=6, dtype="float32"):
    return (np.arange(count) % 3 + rank + 1).astype(dtype)


def everyone(count=6, dtype="float32"):
    return [mine(rank, count, dtype) for rank in range(RANKS)]


class Reducing(unittest.TestCase):
    def test_all_reduce_works_in_place_and_returns_its_argument(self):
        def body(comm):
            x = mine(comm.rank)
            self.assertIs(comm.all_reduce(x), x)
            return x

        for x in on_ranks(RANKS, body):
            np.testing.assert_array_equal(x, sum(everyone()))

    def test_all_reduce_with_out_leaves_its_argument(self):
        def body(comm):
            x, out = mine(comm.rank), np.zeros(6, np.float32)
            self.assertIs(comm.all_reduce(x, out=out), out)
            np.testing.assert_array_equal(x, mine(comm.rank))
            return out

        for out in on_ranks(RANKS, body):
            np.testing.assert_array_equal(out, sum(everyone()))

    def test_every_type_and_reduction_is_numpys(self):
        expected = {
            "sum": np.sum,
            "prod": np.prod,
            "max": np.max,
            "min": np.min,
            "avg": np.mean,
            "band": np.bitwise_and.reduce,
            "bor": np.bitwise_or.reduce,
            "bxor": np.bitwise_xor.reduce,
        }

        def body(comm):
            results = {}
            for dtype in TYPES:
                for op in expected:
                    if op.startswith("b") and dtype.startswith("float"):
                        continue
                    results[dtype, op] = comm.all_reduce(mine(comm.rank, dtype=dtype), op)
            return results

        for results in on_ranks(RANKS, body):
            for (dtype, op), result in results.items():
                reference = expected[op](np.stack(everyone(dtype=dtype)), axis=0)
                with self.subTest(dtype=dtype, op=op):
                    if op == "avg" and dtype.startswith("float"):
                        np.testing.assert_allclose(result, reference, rtol=2e-3)
                    else:
                        np.testing.assert_array_equal(result, reference.astype(dtype))

    def test_reduce_gives_the_root_the_result_and_others_none(self):
        def body(comm):
            return comm.reduce(mine(comm.rank), root=1, out=np.zeros(6, np.float32) if comm.rank == 1 else None)

        results = on_ranks(RANKS, body)
        self.assertIsNone(results[0])
        self.assertIsNone(results[2])
        np.testing.assert_array_equal(results[1], sum(everyone()))

    def test_reduce_scatter_gives_each_rank_its_part(self):
        for rank, result in enumerate(on_ranks(RANKS, lambda comm: comm.reduce_scatter(mine(comm.rank)))):
            np.testing.assert_array_equal(result, sum(everyone())[2 * rank : 2 * rank + 2])

    def test_reduce_scatter_v_gives_parts_of_different_sizes(self):
        counts = [1, 0, 5]
        results = on_ranks(RANKS, lambda comm: comm.reduce_scatter_v(mine(comm.rank), counts))
        np.testing.assert_array_equal(np.concatenate(results), sum(everyone()))


class Copying(unittest.TestCase):
    def test_broadcast_copies_the_roots_array(self):
        def body(comm):
            in_place = comm.broadcast(mine(comm.rank), root=2)
            elsewhere = comm.broadcast(mine(9) if comm.rank == 1 else None, root=1, out=np.zeros(6, np.float32))
            return in_place, elsewhere

        for in_place, elsewhere in on_ranks(RANKS, body):
            np.testing.assert_array_equal(in_place, mine(2))
            np.testing.assert_array_equal(elsewhere, mine(9))

    def test_gathers_have_one_row_for_each_rank(self):
        def body(comm):
            x = mine(comm.rank).reshape(2, 3)
            return comm.all_gather(x), comm.gather(x, root=1)

        expected = np.stack([x.reshape(2, 3) for x in everyone()])
        for rank, (every, rooted) in enumerate(on_ranks(RANKS, body)):
            np.testing.assert_array_equal(every, expected)
            if rank == 1:
                np.testing.assert_array_equal(rooted, expected)
            else:
                self.assertIsNone(rooted)

    def test_all_gather_in_place_takes_the_ranks_part(self):
        def body(comm):
            out = np.zeros((RANKS, 6), np.float32)
            out[comm.rank] = mine(comm.rank)
            return comm.all_gather(out[comm.rank], out=out)

        for out in on_ranks(RANKS, body):
            np.testing.assert_array_equal(out, np.stack(everyone()))

    def test_scatter_gives_each_rank_its_part(self):
        def body(comm):
            return comm.scatter(mine(0) if comm.rank == 0 else None, out=np.zeros(2, np.float32))

        np.testing.assert_array_equal(np.concatenate(on_ranks(RANKS, body)), mine(0))

    def test_all_to_all_transposes_parts(self):
        results = on_ranks(RANKS, lambda comm: comm.all_to_all(mine(comm.rank)))
        parts = np.stack(everyone()).reshape(RANKS, RANKS, 2)
        np.testing.assert_array_equal(np.stack(results), parts.transpose(1, 0, 2).reshape(RANKS, 6))

    def test_calls_of_uneven_parts_put_them_where_the_displacements_say(self):
        counts = [2, 0, 3]

        def body(comm):
            x = mine(comm.rank, counts[comm.rank])
            gathered = comm.all_gather_v(x, counts)
            backwards = comm.all_gather_v(x, counts, out=np.zeros(5, np.float32), displacements=[3, 3, 0])
            rooted = comm.gather_v(x, counts if comm.rank == 0 else None)
            scattered = comm.scatter_v(
                gathered if comm.rank == 0 else None, counts, out=np.zeros(counts[comm.rank], np.float32)
            )
            np.testing.assert_array_equal(scattered, x)
            return gathered, backwards, rooted

        parts = [mine(rank, counts[rank]) for rank in range(RANKS)]
        for rank, (gathered, backwards, rooted) in enumerate(on_ranks(RANKS, body)):
            np.testing.assert_array_equal(gathered, np.concatenate(parts))
            np.testing.assert_array_equal(backwards, np.concatenate(parts[::-1]))
            self.assertEqual(rooted is None, rank != 0)

    def test_all_to_all_v_exchanges_parts_of_different_sizes(self):
        # Rank p sends q + 1 elements to rank q.
        def body(comm):
            x = np.full(6, comm.rank, np.int32)
            return comm.all_to_all_v(x, [1, 2, 3], [comm.rank + 1] * RANKS)

        for rank, out in enumerate(on_ranks(RANKS, body)):
            np.testing.assert_array_equal(out, np.repeat(np.arange(RANKS), rank + 1))

    def test_bool_is_copied_and_combined_by_max(self):
        def body(comm):
            x = np.array([comm.rank == 0, False])
            gathered = comm.all_gather(x)
            return comm.all_reduce(x, "max"), gathered

        for anyone, gathered in on_ranks(RANKS, body):
            np.testing.assert_array_equal(anyone, [True, False])
            self.assertEqual(gathered.sum(), 1)

    def test_arrays_without_elements_are_accepted(self):
        for result in on_ranks(RANKS, lambda comm: comm.all_reduce(np.zeros(0, np.float32))):
            self.assertEqual(result.size, 0)

    def test_arrays_of_the_standard_library_work_without_numpy(self):
        def body(comm):
            x = array.array("d", [comm.rank, 1.0])
            y = bytearray([comm.rank])
            return comm.all_reduce(x), comm.all_gather(y)

        for x, y in on_ranks(RANKS, body):
            self.assertEqual(list(x), [3.0, 3.0])
            self.assertEqual(bytes(y), b"\0\1\2")


class Messages(unittest.TestCase):
    def test_a_ring_of_messages_passes_arrays_on(self):
        def body(comm):
            right, left = (comm.rank + 1) % RANKS, (comm.rank - 1) % RANKS
            out = comm.send_recv(mine(comm.rank), right, np.zeros(6, np.float32), left)
            if comm.rank == 0:
                comm.send(out, 1)
            elif comm.rank == 1:
                np.testing.assert_array_equal(comm.recv(np.zeros(6, np.float32), 0), mine(2))
            return out

        for rank, out in enumerate(on_ranks(RANKS, body)):
            np.testing.assert_array_equal(out, mine((rank - 1) % RANKS))

    def test_a_barrier_ends_on_all_ranks(self):
        on_ranks(RANKS, lambda comm: comm.barrier())


class Processes(unittest.TestCase):
    def test_ranks_that_are_processes_agree(self):
        outputs = run_job(
            2,
            "import array, weft\n"
            "with weft.init(name='two') as comm:\n"
            "    x = array.array('f', [comm.rank + 1] * 1000)\n"
            "    print(comm.rank, comm.size, comm.all_reduce(x)[999])\n",
        )
        self.assertEqual(outputs, ["0 2 3.0\n", "1 2 3.0\n"])


if __name__ == "__main__":
    unittest.main()
