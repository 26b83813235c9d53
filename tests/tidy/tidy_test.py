#!/usr/bin/env python3
# tidy itself on small trees: one that is right, and ones that are wrong in one way each.
import contextlib
import io
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import tidy

README = """# map
```arrows
schedule : 
algorithms : schedule
selector : schedule algorithms/algorithm.hpp
api : schedule
perf tests/c_api : include/weft
tools tests : everything
```
"""
GOOD = {
    "src/README.md": README,
    "src/meson.build": "files('base/log.cpp', 'schedule/build.cpp', 'selector/choose.cpp', 'api/calls.cpp')\n"
    "foreach isa : ['a', 'b']\n  library('schedule/cpu_kernels_' + isa + '.cpp')\nendforeach\n",
    "src/base/log.hpp": "// log.hpp: a log.\n",
    "src/base/log.cpp": '#include "src/base/log.hpp"\n#include <cstdlib>\nconst char* e() { return getenv("X"); }\n',
    "src/schedule/build.hpp": '// build.hpp: builds.\n#include "src/base/log.hpp"\n#include "weft/types.h"\n',
    "src/schedule/build.cpp": '#include "src/schedule/build.hpp"\n',
    "src/schedule/cpu_kernels_a.cpp": "// kernels for a\n",
    "src/selector/choose.cpp": '// choose.cpp: chooses.\n#include "algorithms/algorithm.hpp"\n#include "src/base/log.hpp"\n',
    "src/api/calls.cpp": '// calls.cpp: the interface.\n#include "weft/weft.h"\n#include "src/schedule/build.hpp"\n',
    "algorithms/meson.build": "files('ring.cpp')\n",
    "algorithms/algorithm.hpp": '// algorithm.hpp: a row.\n#include "src/schedule/build.hpp"\n',
    "algorithms/ring.hpp": "// ring.hpp: a ring.\n",
    "algorithms/ring.cpp": '#include "algorithms/ring.hpp"\n#include "algorithms/algorithm.hpp"\n',
    "include/weft/meson.build": "install_headers('types.h', 'weft.h')\n",
    "include/weft/types.h": "/* types.h: types. */\n",
    "include/weft/weft.h": "/* weft.h: calls. */\n#include <weft/types.h>\n",
    "perf/meson.build": "executable('p', 'perf.cpp')\n",
    "perf/perf.cpp": '// perf.cpp: measures.\n#include "table.hpp"\n#include <weft/weft.h>\n#include <vector>\n',
    "perf/table.hpp": "// table.hpp: prints.\n",
    "tests/meson.build": "executable('t', 'inside_test.cpp', 'c_api/calls.c')\n",
    "tests/inside_test.cpp": '// Looks inside.\n#include "src/base/log.hpp"\n#include "src/schedule/build.hpp"\n',
    "tests/c_api/calls.c": "/* The calls in C. */\n#include <weft/weft.h>\n",
}


class TidyTest(unittest.TestCase):
    def objections(self, changes=None):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in {**GOOD, **(changes or {})}.items():
                if text is None:
                    continue
                path = Path(folder) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            return tidy.objections(folder)[1]

    def assert_one(self, changes, *words):
        # An include that is wrong in one way often closes a cycle of units as well.
        found = [line for line in self.objections(changes) if ": unit-cycle: " not in line]
        self.assertEqual(len(found), 1, found)
        for word in words:
            self.assertIn(word, found[0])

    def test_a_good_tree_has_no_objection(self):
        self.assertEqual(self.objections(), [])

    def test_an_include_against_the_arrows_names_file_line_and_rooms(self):
        self.assert_one(
            {"src/schedule/build.cpp": '#include "src/schedule/build.hpp"\n#include "algorithms/ring.hpp"\n'},
            "src/schedule/build.cpp:2", "algorithms/ring.hpp", "no arrow from schedule to algorithms")

    def test_an_arrow_to_one_file_does_not_open_its_room(self):
        self.assert_one({"src/selector/choose.cpp": '// x\n#include "algorithms/ring.hpp"\n'}, "no arrow from selector")

    def test_base_includes_nothing_above_it(self):
        self.assert_one({"src/base/log.cpp": '#include "src/schedule/build.hpp"\n'}, "base includes nothing")

    def test_a_room_without_an_arrow_is_named(self):
        self.assert_one(
            {"src/new/x.cpp": '// x\n#include "src/schedule/build.hpp"\n', "src/new/meson.build": "files('x.cpp')"},
            "new has no arrow")

    def test_a_client_may_not_look_inside(self):
        self.assert_one({"perf/table.hpp": '// x\n#include "src/base/log.hpp"\n'}, "perf/table.hpp:2", "include/weft")
        self.assert_one({"tests/c_api/calls.c": '/* x */\n#include "src/base/log.hpp"\n'}, "include/weft")

    def test_the_public_call_header_is_for_api_and_clients_only(self):
        self.assert_one(
            {"src/schedule/build.cpp": '#include "src/schedule/build.hpp"\n#include "weft/weft.h"\n'}, "no arrow")

    def test_a_public_header_includes_no_private_one(self):
        self.assert_one({"include/weft/types.h": '/* x */\n#include "src/base/log.hpp"\n'}, "public headers")

    def test_an_include_of_nothing_is_found(self):
        self.assert_one({"algorithms/ring.cpp": '#include "algorithms/ring.hpp"\n#include "gone.hpp"\n',
                         "tests/inside_test.cpp": GOOD["tests/inside_test.cpp"] + '#include "algorithms/algorithm.hpp"\n'},
                        "not in the tree")

    def test_an_include_cycle_shows_its_way(self):
        self.assert_one(
            {"src/base/log.hpp": '// x\n#include "src/base/clock.hpp"\n',
             "src/base/clock.hpp": '// x\n#include "src/base/log.hpp"\n'}, "include cycle", "clock.hpp -> src/base/log.hpp")

    def test_dead_files_are_found(self):
        self.assert_one({"src/schedule/old.cpp": "// x\n"}, "src/schedule/old.cpp", "in no meson.build")
        self.assert_one({"src/schedule/old.hpp": "// x\n"}, "src/schedule/old.hpp", "included by nothing")

    def test_a_file_named_in_another_folder_or_a_comment_is_dead(self):
        self.assert_one({"perf/ring.cpp": "// x\n"}, "perf/ring.cpp", "dead")
        self.assert_one({"perf/late.cpp": "// x\n", "perf/meson.build": "executable('p', 'perf.cpp')\n# 'late.cpp'\n"}, "dead")

    def test_names_that_meson_puts_together_and_scripts_keep_a_file_alive(self):
        joined = "foreach n : ['a']\n  executable(n, n + '_test.c')\n  executable(n, '@0@_bench.c'.format(n))\nendforeach\n"
        self.assertEqual(self.objections({
            "tests/more/meson.build": joined, "tests/more/a_test.c": "// x\n", "tests/more/a_bench.c": "// x\n",
            "tests/more/run.sh": "cc client.c\n", "tests/more/client.c": "// x\n"}), [])
        self.assert_one({"tests/more/run.sh": "cc client.cpp\n", "tests/more/client.c": "// x\n"}, "client.c: dead")

    def test_a_folder_that_no_build_enters_is_found(self):
        entered = {"meson.build": "subdir('src')\nsubdir('include/weft')\nforeach each : ['algorithms', 'perf', 'tests']\n"
                   "  subdir(each)\nendforeach\n"}
        self.assertEqual(self.objections(entered), [])
        self.assert_one({**entered, "tests/more/meson.build": "# nothing\n"}, "tests/more/meson.build", "never entered")

    def test_a_room_without_a_test_is_named(self):
        room = {"src/extra/word.hpp": "// x\n", "src/extra/meson.build": "install_headers('word.hpp')\n",
                "src/README.md": README.replace("selector :", "extra :\nselector :")}
        self.assert_one(room, "src/extra: no test twin")
        looked_into = '// x\n#include "src/extra/word.hpp"\n' + GOOD["tests/inside_test.cpp"]
        self.assertEqual(self.objections({**room, "tests/inside_test.cpp": looked_into}), [])
        of_its_name = {"tests/extra/meson.build": "executable('e', 'word.c')\n", "tests/extra/word.c": "// x\n"}
        self.assertEqual(self.objections({**room, **of_its_name}), [])

    def test_an_algorithm_has_a_golden_text_and_a_golden_text_a_test(self):
        row = {"algorithms/algorithms.def": "// rows\nWEFT_ALGORITHM(ring, all_reduce, 1)\n",
               "src/registry.cpp": '// rows\n#include "algorithms/algorithms.def"\n',
               "src/README.md": README.replace("selector :", "registry : algorithms\nselector :"),
               "src/meson.build": GOOD["src/meson.build"] + "files('registry.cpp')\n"}
        self.assert_one(row, "ring has no golden text tests/schedules/ring_all_reduce_N.txt")
        other = {"tests/schedules/ring_other_all_reduce_4.txt": "schedule\n"}
        named = GOOD["tests/inside_test.cpp"] + 'const char* golden[] = {"ring_other_all_reduce_4.txt", '
        self.assert_one({**row, **other, "tests/inside_test.cpp": named + '""};\n'}, "ring has no golden text")
        both = {**row, **other, "tests/schedules/ring_all_reduce_4.txt": "schedule\n"}
        self.assertEqual(
            self.objections({**both, "tests/inside_test.cpp": named + '"ring_all_reduce_4.txt"};\n'}), [])
        self.assert_one({**both, "tests/inside_test.cpp": named + '""};\n'}, "tests/schedules/ring_all_reduce_4.txt", "no test")

    def test_descriptors_are_made_by_fd_alone(self):
        unit = '#include "src/schedule/build.hpp"\n'
        for line in ("Fd s(socket(AF_INET, SOCK_STREAM, 0));", "int f = ::open(name, flags);", "auto f = open(name, O_RDONLY);",
                     "Fd s(accept4(listener, a, b, 0));", "Fd e(eventfd(0, 0));", "std::ifstream file(name);",
                     "int d = fcntl(fd, F_DUPFD_CLOEXEC, 0);", "const int s = ::socket(family, type, 0);"):
            self.assert_one({"src/schedule/build.cpp": unit + line + "\n"}, "src/schedule/build.cpp:2", "Fd")
        fine = ("Fd socket = Fd::socket(AF_INET, SOCK_STREAM);\nauto d = Door::open(name);\nif (group.open()) return;\n"
                "xml_.open(x);\nint socket(int stripe) const;\nFd socket(std::move(x));\ncable->socket(index);\n"
                "#include <sys/eventfd.h>\n// open(x, O_RDONLY)\nStatus open(int number);\nFd socket = Fd::accept(listener);\n")
        self.assertEqual(self.objections({"src/schedule/build.cpp": unit + fine, "src/base/fd.cpp": "// x\nint e = eventfd(0, 0);\n",
                                          "src/meson.build": GOOD["src/meson.build"] + "files('base/fd.cpp')\n"}), [])

    def test_output_is_printed_by_base_alone(self):
        unit = '#include "src/schedule/build.hpp"\n'
        for line in ('fmt::print(stderr, "x");', 'std::cerr << "x";', 'std::cout << std::endl;'):
            self.assert_one({"src/schedule/build.cpp": unit + line + "\n"}, "src/schedule/build.cpp:2", "printing.hpp")
        self.assertEqual(self.objections({"src/schedule/build.cpp": unit + 'print_error("x");\nconst char* x = "fmt::print(1)";  // fmt::print(y)\n'}), [])

    def test_no_loop_runs_over_what_died_with_its_pointer(self):
        unit = '#include "src/schedule/build.hpp"\n'
        for line in ("for (const auto& each : table()->hooks) each();", "for (auto& [id, hook] : weft::table(1)->hooks) {"):
            self.assert_one({"src/schedule/build.cpp": unit + line + "\n"}, "src/schedule/build.cpp:2", "temporary pointer")
        fine = "for (auto& each : table->hooks) {\nfor (auto& each : table().hooks) {\nfor (auto& each : table()->hooks()) {\nfor (int i = 0; i < table()->count; ++i) {\n"
        self.assertEqual(self.objections({"src/schedule/build.cpp": unit + fine}), [])

    def test_getenv_belongs_to_base(self):
        self.assert_one({"algorithms/ring.cpp": '#include "algorithms/ring.hpp"\n#include "algorithms/algorithm.hpp"\n'
                         'auto x = std::getenv("A");  // y\n'}, "algorithms/ring.cpp:3", "getenv")
        for line in ("for (char** entry = environ; *entry; ++entry)", "auto all = ::environ;", "char** all = __environ;"):
            self.assert_one({"algorithms/ring.cpp": '#include "algorithms/ring.hpp"\n#include "algorithms/algorithm.hpp"\n' +
                             line + "\n"}, "algorithms/ring.cpp:3", "environ outside src/base")
        self.assertEqual(self.objections({
            "algorithms/ring.cpp": '#include "algorithms/ring.hpp"\n#include "algorithms/algorithm.hpp"\n'
                                   'auto x = "/proc/1/environ", y = environment("A");  // not environ\n'}), [])

    def test_a_local_function_has_a_name_of_its_own(self):
        local = "// {}: a part.\nnamespace {}weft {{\nnamespace {{\n\nconst char* shown(int value) {{ return nullptr; }}\n\n}}  // namespace\n}}  // namespace weft\n"
        changes = {"src/schedule/build.cpp": '#include "src/schedule/build.hpp"\n' + local.format("build.cpp", ""),
                   "src/selector/choose.cpp": local.format("choose.cpp", "")}
        self.assert_one(changes, "src/selector/choose.cpp", "shown", "src/schedule/build.cpp")
        self.assertEqual(self.objections({**changes, "src/selector/choose.cpp": local.format("choose.cpp", "other::")}), [])

    def test_a_file_has_a_head_comment(self):
        self.assert_one({"perf/table.hpp": "#pragma once\n"}, "perf/table.hpp", "head comment")

    def test_a_long_file_is_a_warning_and_no_objection(self):
        long = {"tests/c_api/calls.c": GOOD["tests/c_api/calls.c"] + "\n" * 600}
        self.assertEqual(self.objections(long), [])

    def test_missing_arrows_are_said(self):
        with self.assertRaisesRegex(ValueError, "arrows"):
            self.objections({"src/README.md": "# no map\n"})

    def test_the_command_fails_with_an_objection_and_only_then(self):
        for changes, status in ({}, 0), ({"perf/old.cpp": "// x\n"}, 1):
            with tempfile.TemporaryDirectory() as folder:
                for name, text in {**GOOD, **changes}.items():
                    path = Path(folder) / name
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_text(text)
                with mock.patch.object(sys, "argv", ["tidy", folder]), contextlib.redirect_stdout(io.StringIO()):
                    self.assertEqual(tidy.main(), status)

    # Structure and language: offenders that known.txt does not list.

    def assert_rule(self, rule, changes, *words):
        found = self.objections(changes)
        self.assertTrue([line for line in found if f": {rule}: " in line and all(word in line for word in words)], found)

    def test_a_seed_of_its_own_is_refused(self):
        text = "// Looks inside.\n#include <random>\nstd::mt19937 random(std::random_device{}());\n"
        self.assert_one({"tests/inside_test.cpp": text + GOOD["tests/inside_test.cpp"]}, "tests/inside_test.cpp:3", "amount.hpp")

    def test_units_that_include_each_other_are_named(self):
        cycle = {"src/base/log.hpp": "// log.hpp: a log.\n",
                 "src/base/log.cpp": '#include "src/base/log.hpp"\n#include "src/base/fd.hpp"\n',
                 "src/base/fd.hpp": '// fd.hpp: files.\n#include "src/base/log.hpp"\n'}
        found = self.objections(cycle)
        self.assertEqual([line.split(":")[0] for line in found], ["src/base/fd", "src/base/log"], found)
        self.assert_rule("unit-cycle", cycle)

    def class_of(self, members):
        return {"src/base/log.hpp": "// log.hpp: a log.\n#pragma once\nnamespace weft {\nclass Log {\n  public:\n" + members + "};\n}\n"}

    def test_a_class_with_many_public_functions_is_named(self):
        calls = "".join(f"    int call_{i}(int a, int b = 0) const {{ return a; }}\n" for i in range(26))
        self.assert_rule("class-functions", self.class_of(calls), "src/base/log.hpp:Log", "26, 0 known")
        self.assertEqual(self.objections(self.class_of(calls.replace("int call_0", "private: int call_0", 1))), [])
        self.assertEqual(self.objections(self.class_of(calls.replace("int call_0(int a, int b = 0) const { return a; }", "int field = 0;"))), [])

    def test_a_class_with_many_fields_is_named(self):
        fields = "    int a = 0, b{1};\n    std::map<int, int> map;\n    std::function<int(int)> call = [](int i) { return i; };\n" \
                 + "".join(f"    int field_{i} = f({i});\n" for i in range(12)) + "    static constexpr int none = 1;\n    using Number = int;\n"
        self.assert_rule("class-fields", self.class_of(fields), "16, 0 known")
        self.assertEqual(self.objections(self.class_of(fields.replace("a = 0, b{1}", "a = 0"))), [])

    def test_a_class_in_two_source_files_is_named(self):
        two = self.class_of("    int one();\n    int two();\n")
        two["src/base/log.cpp"] = '#include "src/base/log.hpp"\nint weft::Log::one() { return 1; }\n'
        two["src/schedule/build.cpp"] = '#include "src/schedule/build.hpp"\n#include "src/base/log.hpp"\nnamespace weft {\nint Log::two() { return 2; }\n}\n'
        self.assert_rule("class-sources", two, "src/base/log.hpp:Log", "2, 0 known")
        two["src/schedule/build.cpp"] = '#include "src/schedule/build.hpp"\n#include "src/base/log.hpp"\nint two() { return Log::two(); }\n'
        self.assertEqual(self.objections(two), [])

    def test_long_units_and_folders_are_named(self):
        unit = {"src/base/log.hpp": "// log.hpp: a log.\n" + "\n" * 200, "src/base/log.cpp": '#include "src/base/log.hpp"\n' + "\n" * 200}
        self.assert_rule("unit-lines", unit, "src/base/log", "402, 0 known")
        table = {"src/base/log.hpp": "// log.hpp: a log.\n#include \"src/base/log.def\"\n", "src/base/log.def": "// log.def: a table of the log.\n" + "\n" * 400}
        self.assertEqual(self.objections(table), [])
        folder = {f"src/base/part_{i}.hpp": f"// part_{i}.hpp: a part.\n" + "\n" * 390 for i in range(11)}
        self.assert_rule("folder-lines", folder, "src/base: ")
        tables = {name.replace(".hpp", ".def"): text.replace(".hpp", ".def") for name, text in folder.items()}
        self.assertNotIn("folder-lines", str(self.objections(tables)))

    def test_the_language_of_comments_and_markdown(self):
        long = "One " + "word " * 30 + "more."
        for rule, text in {"free-who": "Who waits looks around.", "long-sentence": long, "retired-term": "The census is sent."}.items():
            self.assert_rule(rule, {"src/base/log.hpp": f"// log.hpp: a log. {text}\n"}, "src/base/log.hpp")
            self.assert_rule(rule, {"docs/page.md": f"# Page\n\n- {text}\n"}, "docs/page.md")
            self.assert_rule(rule, {"src/meson.build": GOOD["src/meson.build"] + f"# {text}\n"}, "src/meson.build")
        self.assert_rule("free-who", {"docs/page.md": "The rank waits: whoever comes wakes it.\n"})
        self.assert_rule("wide-line", {"docs/page.md": "w" * 101 + "\n"})

    def test_what_is_no_prose_is_left_alone(self):
        for text in ("Who waits?", "A rank knows what it holds.", "Run `" + "word " * 40 + "` now.", "A rank that waits, waits."):
            self.assertEqual(self.objections({"docs/page.md": text[:100] + "\n"}), [], text)
        for block in ("```\nWho waits " + "w" * 200 + "\n```\n", "| Who waits | " + "w" * 200 + " |\n"):
            self.assertEqual(self.objections({"docs/page.md": "# Page\n" + block}), [], block)
        words = "word " * 25
        for name, text in {"src/base/log.hpp": f"// {words}.\n// `a` is {words}.\n",
                           "include/weft/a.h": f"/* {words}\n * a, b  {words}\n * Errors: {words}{words}. */\n"}.items():
            self.assertEqual([line for line in self.objections({name: text}) if "30 words" in line], [], text)
        self.assertEqual(self.objections({"src/schedule/build.cpp": '#include "src/schedule/build.hpp"\nconst char* s = "Who waits";\n'}), [])

    def test_known_offenders_pass_and_may_only_become_fewer(self):
        page = {"docs/page.md": "Who waits looks. Who leaves goes.\n"}
        known = {"tests/tidy/known.txt": "# known\nfree-who docs/page.md 2\n"}
        self.assertEqual(self.objections({**page, **known}), [])
        self.assert_one({**page, "tests/tidy/known.txt": "free-who docs/page.md 1\n"}, "2, 1 known", "name the subject")
        self.assert_one({**page, "tests/tidy/known.txt": "free-who docs/page.md 3\n"}, "2, 3 known", "--shrink")
        self.assert_one({**known, "docs/page.md": "The rank waits.\n"}, "0, 2 known", "--shrink")

    def test_shrinking_takes_away_and_adds_nothing(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in {**GOOD, "docs/page.md": "Who waits looks.\n", "docs/other.md": "Who leaves goes.\n",
                               "tests/tidy/known.txt": "free-who docs/gone.md 1\nfree-who docs/page.md 2\n"}.items():
                path = Path(folder) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            with mock.patch.object(sys, "argv", ["tidy.py", folder, "--shrink"]), contextlib.redirect_stdout(io.StringIO()):
                self.assertEqual(tidy.main(), 0)
            self.assertEqual(tidy.read_known(Path(folder) / "tests/tidy/known.txt"), {("free-who", "docs/page.md"): 1})

    def test_commit_subjects(self):
        for subject in ("comm: name the rank that died", "tests/tidy, docs: count words"):
            self.assertIsNone(tidy.subject_objection(subject))
        for subject in ("Fix it", "comm: " + "x" * 67, "comm: name it.", ": name it"):
            self.assertIsNotNone(tidy.subject_objection(subject), subject)

    def test_without_history_commit_subjects_are_skipped(self):
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
            self.assertEqual(tidy.check_commits(Path(folder)), 77)


if __name__ == "__main__":
    unittest.main()
