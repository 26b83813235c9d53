#!/usr/bin/env python3
# simulated_training_test.py WEFT: perf/simulated_training.py over the simulator, for two hosts and a tiny model.
import importlib.util
import json
import pathlib
import subprocess
import sys
import unittest

PROGRAM = pathlib.Path(__file__).resolve().parents[2] / "perf" / "simulated_training.py"
WEFT = sys.argv.pop()
specification = importlib.util.spec_from_file_location("simulated_training", PROGRAM)
program = importlib.util.module_from_spec(specification)
sys.modules["simulated_training"] = program  # dataclasses look their module up
specification.loader.exec_module(program)


def rows(*flags):
    call = [sys.executable, PROGRAM, "--weft", WEFT, "--model", "tiny", "--hosts", "2", "--json", *flags]
    return [json.loads(line) for line in subprocess.run(call, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()]


class SimulatedTraining(unittest.TestCase):
    def test_the_parts_of_a_step_are_consistent(self):
        for row in rows() + rows("--keep-last", "--checkpoint", "--batch", "8"):
            self.assertAlmostEqual(row["step_ms"], row["compute_ms"] + row["optimizer_ms"] + row["exposed_ms"])
            self.assertAlmostEqual(row["communication_ms"], row["exposed_ms"] + row["hidden_ms"])
            self.assertGreater(row["exposed_ms"], 0)  # the last collective starts after the last computation
            self.assertLessEqual(row["exposed_ms"], row["communication_ms"])
            self.assertLess(row["mfu"], 0.54)

    def test_elements_moved_are_those_of_zero(self):
        # Messages of the ring prove it: each of the N ranks sends (N - 1) / N of what moves.
        ddp, fsdp = rows("--algorithm", "ring")
        for row, times in ((ddp, 2), (fsdp, 3)):
            self.assertEqual(row["moved_elements"], times * row["parameters"])
            self.assertEqual(row["message_bytes"], times * row["parameters"] * 2 * (row["ranks"] - 1))

    def test_a_kept_unit_is_gathered_once(self):
        kept, = rows("--mode", "fsdp", "--keep-last")
        last = sum(count for count, _ in program.MODELS["tiny"].units()[-1])
        self.assertEqual(kept["moved_elements"], 3 * kept["parameters"] - last)

    def test_buckets_close_as_those_of_the_library(self):
        # The golden vector of float32 8, 8, 8, 8, 1 MiB, here in elements of two bytes.
        mebibyte = (1 << 20) // 2
        self.assertEqual(program.buckets([8 * mebibyte] * 4 + [mebibyte]), [[0], [1, 2, 3, 4]])
        self.assertEqual(program.buckets([mebibyte, 10]), [[0], [1]])

    def test_parameters_are_those_of_the_published_models(self):
        billions = {name: round(model.parameters() / 1e9, 2) for name, model in program.MODELS.items()}
        self.assertEqual((billions["llama-7b"], billions["llama-8b"], billions["llama-70b"]), (6.74, 8.03, 68.98))

    def test_a_gather_behind_a_slow_queue_is_exposed(self):
        class Fixed:
            def collective(self, name, size):
                return {"us": 10, "message_bytes": 0, "algorithm": "fixed"}
        model, setting = program.MODELS["tiny"], program.argparse.Namespace(
            batch=1, sequence=1, checkpoint=False, utilisation=0.5, hosts=2, keeps_last=False, reduce_bytes=2)
        compute = program.Compute(model, setting)
        compute.forward, compute.backward = [20.0] * 5, [40.0] * 5
        # Exposed: the first gather, the gather of the last unit between the passes, and the last reduction.
        self.assertEqual(program.fsdp(model, compute, program.Queue(Fixed()), setting), 5 * 60 + 3 * 10)
        compute.forward, compute.backward = [0.0] * 5, [0.0] * 5
        self.assertEqual(program.fsdp(model, compute, program.Queue(Fixed()), setting), 15 * 10)


if __name__ == "__main__":
    unittest.main()
