"""train_test.py PROGRAM WEFT TEXT...: examples/train learns, and ranks learn the same as one process, to the bit."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

PROGRAM, WEFT, *TEXTS = sys.argv[1:]
SHORT = bool(os.environ.get("WEFT_TEST_SMALL") or os.environ.get("WEFT_TEST_SMALL_PURE"))
SMALL = "--layers 1 --width 32 --heads 2 --context 16 --steps 12 --batch 12 --report 11".split()


def run(ranks, *options):
    """The program's output on `ranks` ranks, or of one process without a launcher if `ranks` is 0."""
    command = [WEFT, "run", "-n", str(ranks)] if ranks else []
    return subprocess.run(command + [PROGRAM, *SMALL, *options, *TEXTS], capture_output=True, text=True, timeout=100)


def results(ranks, *options):
    """The losses that were printed, and the hash of all weights."""
    done = run(ranks, *options)
    if done.returncode:
        raise AssertionError(done.stderr)
    return [float(loss) for loss in re.findall(r"loss (\S+)", done.stdout.replace(",", ""))], done.stdout.split()[-1]


class Train(unittest.TestCase):
    def test_the_loss_falls(self):
        (first, *_, last), _ = results(0, "--steps", "60", "--report", "1")
        self.assertLess(last, first - 0.5)

    def test_ranks_in_rank_order_have_the_bits_of_one_process(self):
        seen = set()
        for ranks, storage, accumulate in (2, "f32", 1), (2, "bf16", 2), (3, "f32", 2):
            options = "--storage", storage, "--accumulate", str(accumulate)
            alone = results(0, *options, "--virtual-ranks", str(ranks))
            seen.add(alone[1])
            for mode in "ddp", "zero1", "zero2", "zero3", "fsdp", "hsdp":
                if mode == "hsdp" and ranks == 3:
                    continue
                with self.subTest(ranks=ranks, storage=storage, accumulate=accumulate, mode=mode):
                    self.assertEqual(results(ranks, *options, "--mode", mode, "--deterministic"), alone)
        self.assertEqual(len(seen), 3)  # the hash sees differences

    def test_offload_to_a_disk_keeps_the_bits(self):
        with tempfile.TemporaryDirectory() as folder:
            for ranks, storage, mode in (2, "f32", "zero1"), (2, "bf16", "zero2"), (3, "bf16", "zero3"), (2, "f32", "fsdp"):
                options = "--mode", mode, "--storage", storage, "--deterministic"
                with self.subTest(mode=mode, storage=storage):
                    self.assertEqual(results(ranks, *options, "--offload", "nvme:" + folder), results(ranks, *options))
                    self.assertEqual(os.listdir(folder), [])
            done = run(2, "--mode", "fsdp", "--offload", f"nvme:{folder}/none")
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("none", done.stderr)

    def test_other_sums_and_hooks_stay_near(self):
        wanted, weights = results(0)
        for ranks, *options in (2, "--accumulate", "3"), (2, "--hook", "bf16"), (2, "--hook", "fp16"), (
            2, "--storage", "bf16"), (4, "--mode", "hsdp"):
            with self.subTest(options=options):
                losses, others = results(ranks, "--mode", "ddp", *options)
                self.assertNotEqual(others, weights)
                for loss, near in zip(losses, wanted):
                    self.assertAlmostEqual(loss, near, delta=0.02)

    def test_ranks_that_meet_rarely_learn_as_well(self):
        alone = results(0)
        self.assertEqual(results(1, "--mode", "local", "--period", "3"), alone)
        for mode in "local", "diloco":  # the program checks that the ranks have equal weights at the end
            losses, weights = results(2, "--mode", mode, "--period", "3")
            self.assertNotEqual(weights, alone[1])
            self.assertAlmostEqual(losses[-1], alone[0][-1], delta=0.5)

    def test_a_resumed_training_has_the_bits_of_one_that_was_not_interrupted(self):
        for ranks, mode, storage in (2, "ddp", "f32"), (2, "zero1", "bf16"), (3, "fsdp", "f32"), (4, "hsdp", "f32"):
            with self.subTest(mode=mode, ranks=ranks, storage=storage), tempfile.TemporaryDirectory() as folder:
                options = "--mode", mode, "--storage", storage, "--deterministic", "--report", "1"
                wanted = results(ranks, *options)
                saving = *options, "--checkpoint", folder + "/new", "--checkpoint-every", "5"
                self.assertEqual(results(ranks, *saving), wanted)
                shutil.rmtree(folder + "/new/step-000000010")
                self.assertEqual(results(ranks, *saving, "--resume"), (wanted[0][5:], wanted[1]))
                # An incomplete checkpoint does not count. The next save uses its folder.
                os.remove(folder + "/new/step-000000010/checkpoint.json")
                self.assertEqual(results(ranks, *saving, "--resume"), (wanted[0][5:], wanted[1]))
                self.assertEqual(results(ranks, *saving, "--resume"), (wanted[0][10:], wanted[1]))

    def test_a_resumed_training_keeps_files_hooks_and_values_of_each_rank(self):
        cases = [(2, "ddp", "--hook", "onebit"), (2, "ddp", "--hook", "onebit-lamb", "--optimizer", "lamb"),
                 (2, "diloco", "--period", "4"), (2, "zero1", "--storage", "bf16", "--offload", "nvme:FOLDER")]
        if not SHORT:
            cases += [(2, "ddp", "--hook", hook) for hook in ("topk", "int8", "fp8", "powersgd")]
            cases += [(3, "ddp"), (2, "local", "--period", "4"), (0, "single", "--virtual-ranks", "2"), (2, "fsdp", "--offload", "nvme:FOLDER")]
        for ranks, mode, *options in cases:
            with self.subTest(mode=mode, options=options), tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as disk:
                common = [word.replace("FOLDER", disk) for word in ("--mode", mode, *options, "--report", "1", "--checkpoint", folder)]
                wanted = results(ranks, *common, "--checkpoint-every", "7")
                again = *common, "--checkpoint-every", "2", "--resume", "--keep", "2"
                self.assertEqual(results(ranks, *again), (wanted[0][7:], wanted[1]))
                self.assertEqual(sorted(os.listdir(folder)), ["step-000000010", "step-000000012"])

    def test_another_number_of_ranks_and_another_sharding_continue(self):
        wanted, _ = results(2, "--mode", "ddp", "--report", "1")
        for ranks, mode in (4, "ddp"), (1, "fsdp"), (3, "zero2"):
            with tempfile.TemporaryDirectory() as folder:
                options = "--checkpoint", folder, "--checkpoint-every", "6", "--report", "1"
                results(2, "--mode", "fsdp", *options)
                shutil.rmtree(folder + "/step-000000012")
                losses, _ = results(ranks, "--mode", mode, *options, "--resume")
                self.assertEqual(len(losses), 7)
                for loss, near in zip(losses, wanted[6:]):
                    self.assertAlmostEqual(loss, near, delta=0.002)

    def test_an_elastic_job_that_lost_a_rank_ends_like_one_that_did_not(self):
        for mode, ranks in ("fsdp", 2), ("ddp", 2):
            with self.subTest(mode=mode), tempfile.TemporaryDirectory() as folder:
                options = "--mode", mode, "--report", "1"
                wanted = results(ranks, *options)
                saving = *options, "--checkpoint", folder, "--checkpoint-every", "3", "--resume", "--fail-at", "8"
                command = [WEFT, "run", "--elastic", f"1:{ranks}", "-n", str(ranks), PROGRAM, *SMALL, *saving, *TEXTS]
                done = subprocess.run(command, capture_output=True, text=True, timeout=100)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertRegex(done.stderr, r"weft run: rank 1 \(pid \d+\) on \S+ was killed by signal 9 \(SIGKILL\)")
                self.assertIn(f"restart 1 of 3 with {ranks} ranks", done.stderr)
                self.assertNotIn("restart 2", done.stderr)
                before, after = done.stdout.split("resumed after step ")
                first = int(after.split()[0])
                self.assertIn(first, (3, 6))  # the save after step 6 may be in progress
                losses = [float(loss) for loss in re.findall(r"loss (\S+)", after.replace(",", ""))]
                self.assertEqual((losses, after.split()[-1]), (wanted[0][first:], wanted[1]))
                self.assertNotIn("weights", before)

    def test_an_elastic_job_that_shrinks_learns_on(self):
        with tempfile.TemporaryDirectory() as folder:
            wanted, _ = results(3, "--mode", "fsdp")
            options = "--mode", "fsdp", "--checkpoint", folder, "--checkpoint-every", "3", "--resume", "--fail-at", "8"
            command = [WEFT, "run", "--elastic", "2:3", "--shrink", PROGRAM, *SMALL, *options, *TEXTS]
            done = subprocess.run(command, capture_output=True, text=True, timeout=100)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("restart 1 of 3 with 2 ranks", done.stderr)
            self.assertAlmostEqual(float(re.findall(r"validation loss ([\d.]+)", done.stdout)[0]), wanted[-1], delta=0.02)

    def test_a_checkpoint_of_another_training_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            options = "--mode", "fsdp", "--checkpoint", folder, "--checkpoint-every", "6"
            results(2, *options)
            for other in ["--seed", "2"], ["--batch", "24"]:
                done = run(2, *options, "--resume", *other)
                self.assertEqual(done.returncode, 1)
                self.assertIn("another --seed, --batch or text", done.stderr)
            done = run(2, *options)
            self.assertEqual(done.returncode, 1)
            self.assertIn("train.checkpoint-exists", done.stderr)

    def test_wrong_options_are_named(self):
        for options, word in (["--batch", "13", "--accumulate", "2"], "--batch"), (["--storage", "x"], "--storage"), (
            ["--hook", "fp16"], "--hook"), (["--offload", "nvme:x"], "--offload"), (["--offload", "x"], "--offload"), (["--mode", "local"], "--steps"), (
            ["--widht", "8"], "--widht"), (["--heads", "5"], "--heads"), (["--steps", "0"], "--steps"), (
            ["--resume"], "--checkpoint"), (["--keep", "2"], "--checkpoint"):
            done = run(0, *options)
            self.assertEqual(done.returncode, 1)
            self.assertIn(word, done.stderr.splitlines()[0])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
