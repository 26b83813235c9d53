"""torchrun restarts a job after the death of a rank: the job goes on from its checkpoint and comes to the same losses."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import torch

import ranks
import restart_program

MARK = "WEFT_TEST_RESTART"  # in the environment of all processes of a job


def living(mark):
    """The processes that have the mark."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARK}={mark}".encode() in (process / "environ").read_bytes().split(b"\0"):
                found.append(process.name)
        except OSError:  # it ended, or is another user's
            pass
    return found


def left_in_memory():
    return {name for name in os.listdir("/dev/shm") if "weft" in name.lower()}


def job(folder, size):
    """Runs the program under torchrun. Returns what each rank wrote at its end, and the errors of the first life's ranks."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={size}"]
    command += ["--max-restarts=1", f"--log-dir={folder}/logs", "--redirects=3", restart_program.__file__, folder]
    environment = {
        **os.environ,
        MARK: folder,
        "TORCH_INCLUDE_STACK_TRACE": "0",
        "TORCH_FR_DUMP_TEMP_FILE": f"{folder}/flight_",
    }
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=ranks.LIMIT)
    logs = {each.parts[-3:-1]: each.read_text() for each in Path(folder).glob("logs/**/stderr.log")}
    if done.returncode != 0:
        raise AssertionError(f"torchrun ended with {done.returncode}:\n{done.stderr}\n{logs}")
    ends = [json.loads(Path(folder, f"end {rank}").read_text()) for rank in range(size)]
    return ends, [logs["attempt_0", str(rank)] for rank in range(size)]


class Restart(unittest.TestCase):
    def test_after_a_death(self):
        for size in (2,) if ranks.SMALL else (2, 3):
            with self.subTest(ranks=size), tempfile.TemporaryDirectory() as folder:
                shared = left_in_memory()
                with tempfile.TemporaryDirectory() as undisturbed:
                    wanted = ranks.run(size, restart_program.train, undisturbed)
                ends, errors = job(folder, size)
                for end, (_, losses) in zip(ends, wanted, strict=True):
                    self.assertEqual((end["life"], end["begin"]), (1, 2))
                    torch.testing.assert_close(end["losses"], losses, rtol=1e-12, atol=0)
                for text in errors[:-1]:
                    # Over TCP each rank is a host of its own.
                    self.assertRegex(text, rf"DistBackendError: .*rank {size - 1} .*\[(rank\.died|host\.lost)\]")
                self.assertEqual(living(folder), [])
                self.assertEqual(left_in_memory(), shared)


if __name__ == "__main__":
    unittest.main()
