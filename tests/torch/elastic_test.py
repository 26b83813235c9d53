"""torchrun's elastic mode with a program in C++: elastic_test.py PROGRAM TEXT. A rank or an agent dies, the others start again
from the newest checkpoint, and the result has the bits of a training that nothing disturbed."""

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

PROGRAM, TEXT = sys.argv[1:3]
SMALL = "--layers 1 --width 32 --heads 2 --context 16 --steps 12 --batch 12 --report 1".split()
AGENTS = bool(os.environ.get("WEFT_TEST_AGENTS"))  # takes a minute: agents notice a lost one late
LIMIT = 200


def torchrun(options, folder, *training):
    # torchrun ends the other ranks, which shall say first what they saw.
    patient = ["sh", "-c", 'trap "" TERM; exec "$@"', "sh"]
    command = [sys.executable, "-m", "torch.distributed.run", *options, "--no-python", *patient, PROGRAM, "--mode", "fsdp", "--deterministic"]
    return [*command, *SMALL, "--checkpoint", folder, "--checkpoint-every", "3", "--resume", *training, TEXT]


def losses(text):
    return [float(each) for each in re.findall(r"loss (\S+)", text.replace(",", ""))]


class Elastic(unittest.TestCase):
    def test_a_rank_that_kills_itself_is_named_and_replaced(self):
        alone = subprocess.run([PROGRAM, *SMALL, "--virtual-ranks", "2", TEXT], capture_output=True, text=True, timeout=LIMIT, check=True)
        with tempfile.TemporaryDirectory() as folder:
            command = torchrun(["--standalone", "--nproc-per-node=2", "--max-restarts=2"], folder, "--fail-at", "8")
            done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
        self.assertEqual(done.returncode, 0, done.stderr)
        before, after = done.stdout.split("resumed after step ")
        first = int(after.split()[0])
        self.assertIn(first, (3, 6))  # the save after step 6 may be in progress
        self.assertEqual(losses(after), losses(alone.stdout)[first:])
        self.assertEqual(after.split()[-1], alone.stdout.split()[-1])
        self.assertNotIn("weights", before)
        self.assertRegex(done.stderr, r"rank 1 .*\[rank\.died\]")

    @unittest.skipUnless(AGENTS, "takes a minute")
    def test_without_a_lost_agent_the_other_one_goes_on(self):
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        options = ["--nnodes=1:2", "--nproc-per-node=1", "--max-restarts=3", "--rdzv-backend=c10d", "--rdzv-id=job",
                   f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-conf=last_call_timeout=5,keep_alive_interval=1,keep_alive_max_attempt=3"]
        with tempfile.TemporaryDirectory() as folder:
            # The first agent holds the store, so the second one is lost.
            command = torchrun(options, folder, "--steps", "3000", "--report", "100")
            agents = []
            for number in range(2):
                with open(f"{folder}/agent{number}", "w") as output:
                    agents.append(subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True))
                time.sleep(3)
            try:
                end = time.monotonic() + LIMIT
                while not os.path.exists(f"{folder}/step-000000030/checkpoint.json") and time.monotonic() < end:
                    time.sleep(0.1)
                # The second agent and its rank.
                children = subprocess.run(["pgrep", "-P", str(agents[1].pid)], capture_output=True, text=True).stdout.split()
                for process in [agents[1].pid, *map(int, children)]:
                    os.kill(process, signal.SIGKILL)
                self.assertEqual(agents[0].wait(LIMIT), 0)
            finally:
                for agent in agents:
                    if agent.poll() is None:
                        os.killpg(agent.pid, signal.SIGKILL)
                    agent.wait()
                output = [Path(folder, f"agent{number}").read_text() for number in range(2)]
            resumed = [int(each) for each in re.findall(r"resumed after step (\d+)", "".join(output))]
            self.assertTrue(resumed and resumed[-1] >= 30, output)
            self.assertIn("weights", "".join(output))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
