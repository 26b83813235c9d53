#!/usr/bin/env python3
# compare_test.py TOOL: perf/compare judges what was measured, and perf/peers/peers.sh runs a benchmark in turn with others.
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

PERF = pathlib.Path(__file__).resolve().parents[2] / "perf"
TOOL = sys.argv.pop()


def line(peer, ranks, size, us, ok=True, mode="shm", collective="allreduce", line_ns=(None, None)):
    return json.dumps({"peer": peer, "version": f"{peer} 1.0", "collective": collective, "nranks": ranks, "bytes": size,
                       "median_us": us, "min_us": us, "iters": 3, "ok": ok, "mode": mode, "round": 0, "line_ns": line_ns})


class Compare(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def judge(self, lines, readme=None, mode=None, collective=None, flags=()):
        source = self.folder / "lines.jsonl"
        source.write_text("\n".join(lines) + "\n")
        call = [PERF / "compare", "--from", source] + (["--readme", readme] if readme else [])
        call += ["--mode", mode] if mode else []
        call += ["-c", collective] if collective else []
        call += flags
        return subprocess.run(call, capture_output=True, text=True)

    def test_a_ratio_is_of_medians_over_rounds_and_against_the_best_peer(self):
        rounds = [line("weft", 2, 8, us) for us in (0.2, 0.1, 9)]
        judged = self.judge(rounds + [line("impi", 2, 8, 0.8), line("mpich", 2, 8, 2), line("limit", 2, 8, 0.1)])
        self.assertIn("| 8 | 0.20 | 0.80 impi | 0.25 | 0.4 met | 0.10 |", judged.stdout)
        self.assertIn("No losses", judged.stdout)
        self.assertEqual(judged.returncode, 0)

    def test_goals_missed_and_lost_cells_are_listed(self):
        judged = self.judge([line("weft", 4, 65536, 60), line("impi", 4, 65536, 100), line("weft", 2, 8, 2),
                             line("gloo", 2, 8, 1), line("weft-hostalloc", 2, 65536, 16), line("limit", 2, 65536, 10)])
        self.assertIn("| 64K | 60.0 | 100 impi | 0.60 | 0.55 **missed** |", judged.stdout)
        self.assertIn("- over the goal at 4 ranks, 64K: 0.60 of impi, goal 0.55", judged.stdout)
        self.assertIn("- slower than gloo at 2 ranks, 8: 2.00", judged.stdout)
        self.assertIn("| 10.0 | 16.0 | 1.60 | 1.5 **missed** |", judged.stdout)
        self.assertIn("- over the goal at 2 ranks, 64K with HostAlloc'd buffers: 1.60 of the limit", judged.stdout)

    def test_a_mode_has_its_own_rows_goals_and_place(self):
        lines = [line("weft", 2, 8, 3, mode="tcp"), line("impi", 2, 8, 4, mode="tcp"), line("weft", 2, 8, 1), line("impi", 2, 8, 4)]
        self.assertIn("| 8 | 3.00 | 4.00 impi | 0.75 | 0.7 **missed** |", self.judge(lines, mode="tcp").stdout)
        self.assertIn("| 8 | 1.00 | 4.00 impi | 0.25 | 0.4 met |", self.judge(lines).stdout)
        readme = self.folder / "README.md"
        readme.write_text("<!-- perf/compare: begin -->\nold\n<!-- perf/compare: end -->\n"
                          "<!-- perf/compare --mode tcp: begin -->\nolder\n<!-- perf/compare --mode tcp: end -->\n")
        self.judge(lines, readme, "tcp")
        self.assertIn("old\n", readme.read_text())
        self.assertNotIn("older", readme.read_text())

    def test_another_collective_is_judged_by_itself_by_its_mean_and_by_each_cell(self):
        def both(size, ours, theirs):
            return [line("weft", 2, size, ours, collective="bcast"), line("impi", 2, size, theirs, collective="bcast")]
        others = [line("weft", 2, 8, 1), line("impi", 2, 8, 100)]
        met = self.judge(others + both(8, 4, 10) + both(4096, 9, 10), collective="bcast").stdout
        self.assertIn("| 4K | 9.00 | 10.0 impi | 0.90 | 1.0 met |", met)
        self.assertIn("Geometric mean of the ratios: 0.60, goal 0.7 met.", met)
        self.assertIn("No losses", met)
        missed = self.judge(others + both(8, 12, 10) + both(4096, 9, 10), collective="bcast").stdout
        self.assertIn("- slower than impi at 2 ranks, 8: 1.20", missed)
        self.assertIn("- over the goal at 2 ranks: a geometric mean of 1.04, goal 0.7", missed)
        # A file that lacks it gives no result.
        self.assertNotEqual(self.judge(others, collective="reduce").returncode, 0)
        readme = self.folder / "README.md"
        readme.write_text("<!-- perf/compare: begin -->\nold\n<!-- perf/compare: end -->\n"
                          "<!-- perf/compare -c bcast: begin -->\nolder\n<!-- perf/compare -c bcast: end -->\n")
        self.judge(both(8, 4, 10), readme, collective="bcast")
        self.assertIn("old\n", readme.read_text())
        self.assertNotIn("older", readme.read_text())

    def test_launches_on_near_and_on_far_cores_are_compared_with_their_like(self):
        near, far, between = (30, 40), (160, 170), (30, 160)
        ours = [line("weft", 2, 8, us, line_ns=ns) for us, ns in ((1, near), (6, far), (8, far), (5, between))]
        theirs = [line("impi", 2, 8, us, line_ns=ns) for us, ns in ((2, near), (10, far), (4, (None, 30)), (4, near), (5, near))]
        judged = self.judge(ours + theirs + [line("weft", 2, 4096, 3), line("impi", 2, 4096, 5, line_ns=near)])
        self.assertIn("| ratio | goal | near | far | limit, us |", judged.stdout)
        self.assertIn("| 8 | 5.50 | 4.00 impi | 1.38 | 0.4 **missed** | 0.25 | 0.70 | - |", judged.stdout)
        self.assertIn("| 4K | 3.00 | 5.00 impi | 0.60 | 0.6 met | - | - | - |", judged.stdout)
        ratios = self.judge(ours + theirs, flags=["--ratios"]).stdout
        self.assertIn("| 2, near | allreduce | 0.25 | 0.25 |\n| 2, far | allreduce | 0.70 | 0.70 |\n", ratios)
        self.assertNotIn("1.38", ratios)
        one_phase = self.judge([line("weft", 2, 8, 1, line_ns=near), line("impi", 2, 8, 2, line_ns=near)], flags=["--ratios"]).stdout
        self.assertIn("| 2 | allreduce | 0.50 | 0.50 |", one_phase)

    def test_a_wrong_result_of_weft_is_a_failure_and_one_of_a_peer_is_reported(self):
        good, bad = line("weft", 2, 8, 1), line("weft", 2, 8, 1, ok=False)
        self.assertEqual(self.judge([bad]).returncode, 1)
        judged = self.judge([good, line("impi", 2, 8, 1, ok=False)])
        self.assertEqual(judged.returncode, 0)
        self.assertIn("Wrong results: impi at 2 ranks, 8.", judged.stdout)

    def test_a_comparison_without_weft_is_a_failure(self):
        self.assertNotEqual(self.judge([line("impi", 2, 8, 1)]).returncode, 0)

    def test_the_table_replaces_the_text_between_the_markers_and_nothing_else(self):
        readme = self.folder / "README.md"
        readme.write_text("before\n<!-- perf/compare: begin -->\nold\n<!-- perf/compare: end -->\nafter\n")
        both = [line("weft", 2, 8, 1), line("impi", 2, 8, 2)]
        self.judge(both, readme)
        text = readme.read_text()
        self.assertTrue(text.startswith("before\n") and text.endswith("after\n"))
        self.assertNotIn("old", text)
        self.assertIn("**2 ranks**", text)
        readme.write_text("no markers\n")
        self.assertNotEqual(self.judge(both, readme).returncode, 0)
        self.assertEqual(readme.read_text(), "no markers\n")

    def test_without_another_library_nothing_is_compared_and_the_table_stays(self):
        readme = self.folder / "README.md"
        old = "<!-- perf/compare: begin -->\nold\n<!-- perf/compare: end -->\n"
        readme.write_text(old)
        alone = [line("weft", 2, 8, 1), line("weft-hostalloc", 2, 8, 1), line("limit", 2, 8, 1)]
        for flags in ([], ["--ratios"]):
            judged = self.judge(alone, readme, flags=flags)
            self.assertEqual(judged.returncode, 1)
            self.assertIn("no other library was measured", judged.stderr)
            self.assertNotIn("No losses", judged.stdout)
        self.assertEqual(readme.read_text(), old)

    def test_the_readme_has_the_markers(self):
        text = (PERF / "README.md").read_text()
        self.assertEqual(text.count("<!-- perf/compare: begin -->"), 1)
        self.assertEqual(text.count("<!-- perf/compare: end -->"), 1)

    def draw(self, lines, environment=os.environ):
        source, picture = self.folder / "lines.jsonl", self.folder / "picture.svg"
        source.write_text("\n".join(lines) + "\n")
        drawn = subprocess.run([sys.executable, PERF / "compare", "--from", source, "--svg", picture], capture_output=True, text=True,
                               env=environment)
        return drawn, picture

    @unittest.skipUnless(importlib.util.find_spec("matplotlib"), "no matplotlib: apt-get install python3-matplotlib")
    def test_a_picture_has_a_panel_for_each_rank_count_and_a_line_for_each_library(self):
        lines = [line(peer, ranks, size, us) for peer, us in (("weft", 2), ("a<b>&c", 3), ("limit", 1)) for ranks in (2, 4)
                 for size in (8, 1024, 1 << 20)]
        drawn, picture = self.draw(lines)
        self.assertEqual(drawn.returncode, 0, drawn.stderr)
        words = [element.text for element in xml.etree.ElementTree.parse(picture).iter() if element.tag.endswith("}text")]
        for word in ("2 ranks", "4 ranks", "Weft", "a<b>&c", "limit", "8", "1K", "1M"):
            self.assertIn(word, words)
        first = picture.read_bytes()
        self.draw(lines)
        self.assertEqual(first, picture.read_bytes())
        picture.unlink()
        picture.mkdir()
        drawn, _ = self.draw(lines)
        self.assertEqual(drawn.returncode, 1)
        self.assertIn("could not be written", drawn.stderr)
        self.assertNotIn("Traceback", drawn.stderr)

    def test_without_matplotlib_the_package_is_named(self):
        (self.folder / "matplotlib.py").write_text("raise ImportError('none here')\n")
        drawn, picture = self.draw([line("weft", 2, 8, 1)], dict(os.environ, PYTHONPATH=str(self.folder)))
        self.assertEqual(drawn.returncode, 1)
        self.assertIn("apt-get install python3-matplotlib", drawn.stderr)
        self.assertNotIn("Traceback", drawn.stderr)
        self.assertFalse(picture.exists())

    def test_peers_sh_runs_a_benchmark_in_turns_and_reads_its_lines(self):
        output = self.folder / "out.jsonl"
        command = f'weft={TOOL} -t $RANKS --json-lines weft --sizes "$SIZES" --seconds $SECONDS_PER_SIZE'
        environment = dict(os.environ, PEERS_HOME=str(self.folder / "home"))
        run = subprocess.run([PERF / "peers/peers.sh", "-p", "", "-n", "2", "-b", "8 1K", "-r", "2", "-t", "0.01", "-o", output,
                              "--cmd", command], env=environment, capture_output=True, text=True)
        self.assertEqual(run.returncode, 0, run.stderr)
        rows = [json.loads(text) for text in output.read_text().splitlines()]
        self.assertEqual([(row["peer"], row["bytes"], row["round"]) for row in rows],
                         [("weft", 8, 0), ("weft", 1024, 0), ("weft", 8, 1), ("weft", 1024, 1)])
        self.assertTrue(all(row["ok"] and row["nranks"] == 2 for row in rows))
        for nanoseconds in (ns for row in rows for ns in row["line_ns"] if len(os.sched_getaffinity(0)) > 1):
            self.assertGreater(nanoseconds, 0)
        self.assertIn("| 1K | ", run.stdout)


class Baseline(unittest.TestCase):
    """--baseline: rows of an old and a new build, the old build twice."""
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def judge(self, times, rows=(["allreduce", 2, "shm"],), sizes=("8", "4K"), ok=True, flags=()):
        """times[builds]: us of the sizes, in the order of the JSON lines."""
        lines = [line(build, ranks, size, us, ok, mode, collective) for collective, ranks, mode in rows
                 for build, row in times.items() for size, us in zip((8, 4096), row)]
        about = {"machine": "a machine", "date": "2000-01-01", "weft": "ccc", "baseline": "aaa", "stolen_percent": 0.5,
                 "rows": list(rows), "sizes": sizes}
        source = self.folder / "lines.jsonl"
        source.write_text("\n".join([*lines, json.dumps(about)]) + "\n")
        return subprocess.run([PERF / "compare", "--from", source, *flags], capture_output=True, text=True)

    def test_a_row_is_the_geometric_mean_over_sizes(self):
        judged = self.judge({"old": (1, 10), "new": (1.1, 9), "old-again": (1, 10)})
        self.assertIn("| allreduce | 2 | shm | 0.995 | 1.000 | 1.10 at 8 | ok |", judged.stdout)
        self.assertIn("1 rows of 1 are ok.", judged.stdout)
        self.assertIn("New build: ccc; old build: aaa.", judged.stdout)
        self.assertEqual(judged.returncode, 0)

    def test_a_slower_row_fails_unless_the_old_build_differs_as_much_from_itself(self):
        for again, verdict in (((1, 10), "**slower**"), ((1.06, 10.6), "ok"), ((0.94, 9.4), "ok"), ((1.02, 10.2), "**slower**")):
            judged = self.judge({"old": (1, 10), "new": (1.05, 10.5), "old-again": again})
            self.assertIn(f"| 1.05 at 8 | {verdict} |", judged.stdout)
            self.assertEqual(judged.returncode, 0 if verdict == "ok" else 1)

    def test_a_missing_row_a_missing_size_and_a_wrong_result_fail(self):
        same = {"old": (1, 10), "new": (1, 10), "old-again": (1, 10)}
        judged = self.judge({**same, "new": (1,)})
        self.assertIn("**no result at 4K**", judged.stdout)
        self.assertEqual(judged.returncode, 1)
        judged = self.judge({})
        self.assertIn("| allreduce | 2 | shm | - | - | - | **no result at 8, 4K** |", judged.stdout)
        self.assertEqual(judged.returncode, 1)
        judged = self.judge(same, ok=False)
        self.assertIn("**wrong result**", judged.stdout)
        self.assertEqual(judged.returncode, 1)

    def test_rows_of_other_rank_counts_and_transports_are_judged_by_themselves(self):
        rows = (["allreduce", 2, "shm"], ["allreduce", 2, "tcp"], ["bcast", 4, "shm"])
        table = self.folder / "table.md"
        judged = self.judge({"old": (1, 10), "new": (1, 10), "old-again": (1, 10)}, rows, flags=["--markdown", table])
        for row in rows:
            self.assertIn(f"| {row[0]} | {row[1]} | {row[2]} | 1.000 |", judged.stdout)
        self.assertEqual(table.read_text(), judged.stdout)
        self.assertIn("# 2000-01-01", judged.stdout)

    def build_folder(self, name, us, optimization="3"):
        """Looks like a build folder: its programs say how they were run, and take `us` for each size."""
        build = self.folder / name
        for path, text in {
                "tools/weft": 'while [ "$1" != core ]; do shift; done; shift; exec "$@"\n',
                "perf/all_reduce_perf":
                    f'echo "{name} $RANKS $MODE ${{WEFT_TRANSPORTS:--}} $*" >> {self.folder}/launches\n'
                    'for size in $SIZES; do\n'
                    '  bytes=$(echo $size | sed s/K/024/)\n'
                    f'  echo "{{\\"peer\\":\\"x\\",\\"version\\":\\"1\\",\\"collective\\":\\"allreduce\\",\\"nranks\\":$RANKS,'
                    f'\\"bytes\\":$bytes,\\"median_us\\":{us},\\"min_us\\":1,\\"iters\\":1,\\"ok\\":true}}"\n'
                    'done\n'}.items():
            (build / path).parent.mkdir(parents=True, exist_ok=True)
            (build / path).write_text("#!/bin/sh\n" + text)
            (build / path).chmod(0o755)
        (build / "meson-info").mkdir()
        (build / "meson-info/intro-buildoptions.json").write_text(json.dumps([{"name": "optimization", "value": optimization}]))
        (build / "build.ninja").write_text("")
        return build

    def compare(self, old, new, *flags):
        """With a ninja that builds nothing, and a program `limits` that need not be compiled."""
        programs = self.folder / "home/bin"
        programs.mkdir(parents=True, exist_ok=True)
        for name, text in (("ninja", "exit 0"), ("limits", "echo 30")):
            (programs / name).write_text(f"#!/bin/sh\n{text}\n")
            (programs / name).chmod(0o755)
        environment = dict(os.environ, PEERS_HOME=str(self.folder / "home"), PATH=f"{programs}:{os.environ['PATH']}")
        return subprocess.run([PERF / "compare", "--baseline", old, "--build", new, "-c", "allreduce", "--sizes", "8 1K", *flags],
                              env=environment, capture_output=True, text=True)

    def test_the_builds_run_in_turns_and_every_second_round_backwards(self):
        old, new = self.build_folder("before", 2), self.build_folder("after", 2.02)
        run = self.compare(old, new, "--ranks", "2", "--rounds", "2", "--mode", "tcp", "--baseline-commit", "v1", "--seconds", "0.01")
        self.assertEqual(run.returncode, 0, run.stderr)
        launches = (self.folder / "launches").read_text().splitlines()
        self.assertEqual([launch.split()[0] for launch in launches], ["before", "after", "before"] * 2)
        names = [launch.split("--json-lines ")[1] for launch in launches]
        self.assertEqual(names, ["old", "new", "old-again", "old-again", "new", "old"])
        self.assertTrue(all(launch.split()[1:4] == ["2", "tcp", "tcp"] for launch in launches), launches)
        self.assertIn("old build: v1.", run.stdout)
        self.assertIn("2 rounds", run.stdout)
        self.assertIn("| allreduce | 2 | tcp | 1.010 | 1.000 | 1.01 at 8 | ok |", run.stdout)

    def test_both_transports_and_two_rank_counts_are_measured_and_a_slower_build_fails(self):
        run = self.compare(self.build_folder("before", 2), self.build_folder("after", 3), "--rounds", "1")
        self.assertEqual(run.returncode, 1, run.stderr)
        for row in ("2 | shm", "4 | shm", "2 | tcp", "4 | tcp"):
            self.assertIn(f"| allreduce | {row} | 1.500 | 1.000 |", run.stdout)

    def test_builds_of_different_options_or_without_the_programs_are_refused(self):
        old, new = self.build_folder("before", 2), self.build_folder("after", 2, optimization="0")
        run = self.compare(old, new)
        self.assertIn("optimization is 3 and 0", run.stderr)
        self.assertEqual(run.returncode, 1)
        (old / "perf/all_reduce_perf").unlink()
        run = self.compare(old, new)
        self.assertIn("lacks perf/all_reduce_perf", run.stderr)
        self.assertEqual(run.returncode, 1)
        self.assertFalse((self.folder / "launches").exists())

    def test_options_of_the_other_comparison_are_refused(self):
        for flag in (["--quick"], ["--peers", "impi"], ["-c", "nothing"]):
            self.assertEqual(self.compare(self.folder, self.folder, *flag).returncode, 2)
        for flag in (["-c", "gather"], ["--markdown", "x"]):
            self.assertEqual(subprocess.run([PERF / "compare", *flag], capture_output=True).returncode, 2)


if __name__ == "__main__":
    unittest.main()
