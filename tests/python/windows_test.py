"""Windows: one-sided calls."""
import unittest

import numpy as np
import weft
from ranks import on_ranks


class Windows(unittest.TestCase):
    def test_a_put_is_visible_after_its_signal(self):
        def body(comm):
            right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
            memory = np.zeros(4, np.int32)
            with comm.window(memory) as window:
                window.put_signal(np.full(2, comm.rank, np.int32), right, 8)
                comm.wait_signal(left)
                self.assertEqual(window.address, memory.ctypes.data)
                return memory.tolist()

        self.assertEqual(on_ranks(3, body), [[0, 0, 2, 2], [0, 0, 0, 0], [0, 0, 1, 1]])

    def test_get_reads_the_peers_part(self):
        def body(comm):
            with comm.window(np.full(3, comm.rank, np.float32)) as window:
                comm.barrier()
                value = window.get(np.zeros(1, np.float32), 1 - comm.rank, 4)[0]
                comm.barrier()
                return value

        self.assertEqual(on_ranks(2, body), [1, 0])

    def test_signals_have_indices_and_contexts(self):
        def body(comm):
            peer = 1 - comm.rank
            with comm.window(None if comm.rank else bytearray(8)) as window:
                if comm.rank:
                    window.put(b"12345678", 0)
                comm.signal(peer, index=3, context=1)
                comm.signal(peer, index=3, context=1)
                comm.signal(peer)
                comm.wait_signals([(peer, 2, 3, 1), (peer, 1, 0, 0)])

        on_ranks(2, body)

    def test_a_window_on_host_memory(self):
        def body(comm):
            memory = weft.HostMemory(4096)
            with comm.window(memory) as window:
                window.put_signal(bytes([comm.rank + 1]), 1 - comm.rank)
                comm.wait_signal(1 - comm.rank)
            return memoryview(memory)[0]

        self.assertEqual(on_ranks(2, body), [2, 1])

    def test_the_memory_of_a_window_is_held_until_it_is_closed(self):
        with weft.init() as comm:
            memory = bytearray(8)
            window = comm.window(memory)
            with self.assertRaises(BufferError):
                memory.append(1)
            window.close()
            memory.append(1)
            with self.assertRaises(weft.InvalidUsageError):
                window.put(b"1", 0)

    def test_the_memory_of_a_forgotten_window_is_held_until_the_communicator_ends(self):
        comm = weft.init()
        memory = bytearray(8)
        comm.window(memory)
        with self.assertRaises(BufferError):
            memory.append(1)
        comm.close()
        memory.append(1)

    def test_a_put_beyond_the_window_is_refused(self):
        with weft.init() as comm, comm.window(bytearray(8)) as window:
            with self.assertRaises(weft.InvalidArgumentError):
                window.put(b"123", 0, 6)


if __name__ == "__main__":
    unittest.main()
