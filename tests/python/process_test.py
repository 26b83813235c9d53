"""The package inside a program: Ctrl-C, fork, threads, the end of the interpreter."""
import array
import signal
import subprocess
import sys
import threading
import unittest

import weft
from ranks import LONG, blocked, end_job, environment, start_job

# Prints "blocked" when the main thread has released the GIL, which it does in the call that follows.
BLOCKED = """
import array, os, signal, sys, threading, weft
sys.setswitchinterval(1000)
lock = threading.Lock()
lock.acquire()
def tell():
    with lock:
        print("blocked", flush=True)
threading.Thread(target=tell, daemon=True).start()
"""
# Prints "signal" for each signal that has arrived, also while the main thread is inside a call.
SIGNALS = """
source, target = os.pipe()
os.set_blocking(target, False)
signal.set_wakeup_fd(target)
def tell_signals():
    while os.read(source, 1):
        print("signal", flush=True)
threading.Thread(target=tell_signals, daemon=True).start()
"""
REDUCE = "x = array.array('f', [1])\nlock.release()\ncomm.all_reduce(x)\n"


def two_ranks(first, second):
    """Two processes that join and run their texts. Rank 1 waits for a line of its input first."""
    identifier = weft.unique_id().hex()
    texts = [first, "sys.stdin.readline()\n" + second]
    return [
        subprocess.Popen(
            [sys.executable, "-u", "-c", BLOCKED + "comm = weft.init()\n" + text],
            env=environment(rank, 2, identifier),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, text in enumerate(texts)
    ]


class Interrupts(unittest.TestCase):
    def says(self, process, line):
        """Waits until the program prints the line, its next one."""
        self.assertEqual(process.stdout.readline(), line + "\n")

    def interrupted(self, text, other):
        """Rank 0 blocks in `text` and gets SIGINT; rank 1 runs `other` when rank 0 has ended. Their ends."""
        ranks = two_ranks(text, other)
        self.says(ranks[0], "blocked")
        ranks[0].send_signal(signal.SIGINT)
        ranks[0].wait(LONG)
        return self.released(ranks)

    def release(self, ranks):
        ranks[1].stdin.write("\n")
        ranks[1].stdin.flush()

    def released(self, ranks):
        self.release(ranks)
        return end_job(ranks)

    def test_ctrl_c_ends_a_blocked_call_and_aborts_the_other_ranks(self):
        ends = self.interrupted(REDUCE, REDUCE)
        self.assertIn("KeyboardInterrupt", ends[0][2])
        self.assertIn("RemoteError", ends[1][2])
        self.assertIn("abort", ends[1][2])

    def test_ctrl_c_ends_a_group_a_barrier_a_wait_and_a_close(self):
        for text in (
            "with weft.group():\n    comm.all_reduce(array.array('f', [1]))\n    lock.release()\n",
            "lock.release()\ncomm.barrier()\n",
            "stream = weft.Stream()\ncomm.barrier(stream=stream)\ntry:\n    lock.release()\n    stream.wait()\n"
            "finally:\n    comm.abort()\n",
            "stream = weft.Stream()\ncomm.barrier(stream=stream)\nlock.release()\ncomm.close()\n",
        ):
            with self.subTest(text=text):
                ends = self.interrupted(text, REDUCE)
                self.assertIn("KeyboardInterrupt", ends[0][2])
                self.assertIn("RemoteError", ends[1][2])

    def test_ctrl_c_ends_an_iteration_of_training_on_all_ranks(self):
        make = "ddp = weft.train.Ddp(comm, {'x': memoryview(bytearray(8)).cast('f')})\nddp.begin()\n"
        finish = "ddp.ready(0)\nlock.release()\nddp.finish()\n"
        ranks = two_ranks(make + finish, make + "print('made')\nsys.stdin.readline()\n" + finish)
        self.release(ranks)
        self.says(ranks[1], "made")  # the end of rank 0 would end that, too
        self.says(ranks[0], "blocked")
        ranks[0].send_signal(signal.SIGINT)
        ranks[0].wait(LONG)
        ends = self.released(ranks)
        self.assertIn("KeyboardInterrupt", ends[0][2])
        self.assertIn("abort.remote", ends[1][2])

    def test_ctrl_c_ends_a_hook_in_the_main_thread_after_a_call_of_the_hook(self):
        # finish() of an iteration without reports runs the hook in its own thread.
        text = (
            "def hook(bucket):\n    bucket.comm.barrier()\n    {}\n    bucket.average()\n"
            "x = {{'x': memoryview(bytearray(8)).cast('f')}}\n"
            "ddp = weft.train.Ddp(comm, x, hook=hook, find_unused=True)\nddp.begin()\nddp.finish()\n"
        )
        ranks = two_ranks(text.format("lock.release()"), text.format("print('here'); sys.stdin.readline()"))
        self.release(ranks)
        self.says(ranks[1], "here")
        self.says(ranks[0], "blocked")
        ranks[0].send_signal(signal.SIGINT)
        ranks[0].wait(LONG)
        ends = self.released(ranks)
        self.assertIn("KeyboardInterrupt", ends[0][2])
        self.assertIn("abort.remote", ends[1][2])

    def test_ctrl_c_ends_the_wait_for_a_missing_rank(self):
        (process,) = start_job(1, BLOCKED + "lock.release()\nweft.init()\n", WEFT_SIZE="2")
        self.says(process, "blocked")
        process.send_signal(signal.SIGINT)
        self.assertIn("KeyboardInterrupt", end_job([process])[0][2])

    def test_a_programs_own_handler_runs_after_the_call(self):
        handler = "signal.signal(signal.SIGINT, lambda *_: print('handler'))\n"
        ranks = two_ranks(SIGNALS + handler + REDUCE + "print(x[0])\n", REDUCE)
        self.says(ranks[0], "blocked")
        ranks[0].send_signal(signal.SIGINT)
        self.says(ranks[0], "signal")
        ends = self.released(ranks)
        self.assertEqual([end[0] for end in ends], [0, 0], ends)
        self.assertEqual(ends[0][1], "handler\n2.0\n")

    def test_a_second_ctrl_c_ends_the_call_despite_a_programs_handler(self):
        text = (
            "signal.signal(signal.SIGINT, lambda *_: None)\n"
            "x = array.array('f', [1])\n"
            "try:\n"
            "    with weft.group():\n        comm.send(x, 1)\n        comm.recv(x, 1)\n        lock.release()\n"
            "except weft.InvalidUsageError as error:\n    print(error.id)\n"
        )
        receive = "comm.recv(array.array('f', [0]), 0)\nprint('received')\n"
        ranks = two_ranks(SIGNALS + text, receive + "sys.stdin.readline()\n")
        self.says(ranks[0], "blocked")
        self.release(ranks)
        self.says(ranks[1], "received")  # so rank 0 is inside the call
        ranks[0].send_signal(signal.SIGINT)
        self.says(ranks[0], "signal")
        ranks[0].send_signal(signal.SIGINT)
        ends = self.released(ranks)
        self.assertEqual(ends[0][0], 0, ends)
        self.assertIn("abort.local\n", ends[0][1])


class Forks(unittest.TestCase):
    def test_a_child_of_fork_cannot_use_the_parents_communicator_and_makes_its_own(self):
        text = """
import array, os, sys, weft
comm = weft.init()
comm.all_reduce(array.array('f', [1]))
child = os.fork()
if child == 0:
    try:
        comm.all_reduce(array.array('f', [1]))
        os._exit(1)
    except weft.InvalidUsageError as error:
        if error.id != "usage.forked": os._exit(2)
    own = weft.init_all(1)[0]
    x = array.array('f', [3])
    own.all_reduce(x)
    sys.exit(0 if x[0] == 3 else 3)
_, status = os.waitpid(child, 0)
x = array.array('f', [1])
comm.all_reduce(x)
print(os.waitstatus_to_exitcode(status), x[0])
"""
        for status, output, errors in end_job(start_job(2, text)):
            self.assertEqual((status, output), (0, "0 2.0\n"), errors)

    def test_a_pool_of_processes_beside_a_communicator_ends(self):
        text = """
import array, multiprocessing, weft
def double(x):
    return 2 * x
if __name__ == "__main__":
    comm = weft.init()
    with multiprocessing.get_context("fork").Pool(2) as pool:
        print(sum(pool.map(double, range(10))))
    comm.all_reduce(array.array('f', [1]))
"""
        for status, output, errors in end_job(start_job(2, text)):
            self.assertEqual((status, output), (0, "90\n"), errors)


class Exits(unittest.TestCase):
    def ends(self, text, count=1):
        return end_job(start_job(count, text))

    def test_a_daemon_thread_inside_a_call_does_not_keep_the_program(self):
        text = """
import array, weft
from ranks import blocked
comms = weft.init_all(2)
x = array.array('f', [1])
blocked(lambda: comms[0].all_reduce(x))
"""
        status, _, errors = self.ends(text)[0]
        self.assertEqual(status, 0, errors)

    def test_a_daemon_thread_that_waits_for_a_missing_rank_does_not_keep_the_program(self):
        # The end of the interpreter takes longer than the thread's sleep between two looks at signals.
        text = """
import sys, time, types, weft
from ranks import blocked
class Slow:
    def __init__(self):
        self.sleep, self.print = time.sleep, print
    def __del__(self):
        self.sleep(0.2)
        self.print("slow")
sys.modules["slow"] = types.ModuleType("slow")
sys.modules["slow"].object = Slow()
blocked(lambda: weft.init(rank=0, size=2, unique_id=weft.unique_id()))
"""
        self.assertEqual(self.ends(text)[0], (0, "slow\n", ""))

    def test_objects_of_a_program_that_ends_are_no_error(self):
        text = """
import sys, weft
comm = weft.init()
stream = weft.Stream()
memory = bytearray(8)
window = comm.window(memory)
registration = comm.register(memory)
op = comm.reduction(lambda *_: None, "float32")
with weft.prepare() as calls:
    comm.all_reduce(memory)
comm.all_reduce(memory, stream=stream)
cycle = [comm]
cycle.append(cycle)
"""
        status, output, errors = self.ends(text)[0]
        self.assertEqual((status, output, errors), (0, "", ""))

    def test_a_rank_that_raises_is_named_by_the_others(self):
        text = """
import array, weft
comm = weft.init()
if comm.rank == 1:
    raise SystemExit(4)
comm.all_reduce(array.array('f', [1]))
"""
        ends = self.ends(text, 2)
        self.assertEqual(ends[1][0], 4)
        self.assertIn("RemoteError", ends[0][2])
        self.assertIn("rank 1", ends[0][2])

    def test_a_call_at_exit_is_refused(self):
        text = """
import atexit, array, weft
comm = None
def late():
    try:
        comm.all_reduce(array.array('f', [1]))
    except weft.Error as error:
        print(error.id)
import weft._load
atexit.unregister(weft._load._weft.end_all)
atexit.register(late)
atexit.register(weft._load._weft.end_all)
comm = weft.init()
"""
        status, output, errors = self.ends(text)[0]
        self.assertEqual((status, output), (0, "python.closed\n"), errors)


class Threads(unittest.TestCase):
    def test_a_second_thread_on_a_communicator_is_refused(self):
        comms = weft.init_all(2)
        refused = threading.Event()
        ends = []

        def call():
            try:
                comms[0].barrier()
                ends.append("done")
            except weft.InvalidUsageError as error:
                ends.append(error.id)
                refused.set()

        threads = [threading.Thread(target=call, daemon=True) for _ in range(2)]
        for each in threads:
            each.start()
        self.assertTrue(refused.wait(LONG))
        comms[1].barrier()
        for each in threads:
            each.join(LONG)
        self.assertEqual(ends, ["usage.threads", "done"])
        for comm in comms:
            comm.close()

    def test_other_threads_run_while_a_call_blocks(self):
        comms = weft.init_all(2)
        x = array.array("f", [1])
        # It returns although the call has not ended.
        thread = blocked(lambda: comms[0].all_reduce(x))
        comms[1].all_reduce(array.array("f", [1]))
        thread.join(LONG)
        self.assertEqual(x[0], 2)
        for comm in comms:
            comm.close()


if __name__ == "__main__":
    unittest.main()
