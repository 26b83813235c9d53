// rows_test.cpp: the benchmark of every collective, over a made-up library that is right or wrong, and over Weft.
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "tests/amount.hpp"
#include "tests/catch.hpp"
#include "tests/perf/run_program.hpp"

using Catch::Contains;
using weft::internal::test::seed, weft::internal::test::small;

namespace {

// The expected programs, stated again and not read from their rows.
struct Expected {
    std::string name;
    std::string bench_name;
    bool parted, rooted, reduces, in_place;
    double bus_factor_of_4;  // ranks
};
const std::vector<Expected> expected = {
    {"all_reduce", "allreduce", false, false, true, true, 1.5},
    {"all_gather", "allgather", true, false, false, true, 0.75},
    {"reduce_scatter", "reduce_scatter", true, false, true, true, 0.75},
    {"broadcast", "bcast", false, true, false, true, 1},
    {"reduce", "reduce", false, true, true, true, 1},
    {"alltoall", "alltoall", true, false, false, false, 0.75},
    {"gather", "gather", true, true, false, true, 0.75},
    {"scatter", "scatter", true, true, false, true, 0.75},
    {"alltoallv", "alltoallv", true, false, false, false, 0.5},
    {"sendrecv", "ring_shift", false, false, false, false, 1},
    {"pingpong", "sendrecv", false, false, false, false, 1},
    {"put", "put_ring_shift", false, false, false, false, 1},
};

Run over_fake(const Expected& program, const std::string& arguments, const std::string& fault = "") {
    return run_command("FAKE_WEFT=" + fault + " " FAKES "/" + program.name + "_perf_fake " + arguments);
}

std::string real(const Expected& program) { return REAL "/" + program.name + "_perf"; }

// Parts of 1000 elements, which is where the fake is wrong.
std::string size_flags(const Expected& program, int ranks) {
    const std::string bytes = std::to_string(4000 * (program.parted ? ranks : 1));
    return "-t " + std::to_string(ranks) + " -b " + bytes + " -e " + bytes + " -n 1 ";
}

// The words of the only line of the table.
std::vector<std::string> words_of_line(const std::string& output) {
    std::istringstream lines(output);
    std::vector<std::string> words;
    for (std::string line; std::getline(lines, line);)
        if (!line.empty() && line[0] == ' ') {
            std::istringstream all(line);
            for (std::string word; all >> word;) words.push_back(word);
        }
    return words;
}

}  // namespace

TEST_CASE("a right library passes with every collective, type, reduction and root") {
    const Expected& program = GENERATE(from_range(expected));
    const int ranks = GENERATE(1, 3, 4);
    if (program.name == "pingpong" && ranks == 1) return;
    const Run all =
        over_fake(program, "-t " + std::to_string(ranks) + " -b 2400 -e 2400 -n 1 -w 0 -d all -o all -r -1");
    INFO(program.name << '\n' << all.output);
    CHECK(all.status == 0);
    // Bit operations on the six integer types.
    const int reductions = program.reduces ? 12 * 6 + 6 * 3 : 12;
    CHECK(lines_with(all.output, "\n        2400  ") == reductions * (program.rooted ? ranks : 1));
    CHECK_THAT(all.output, Contains("# Out of bounds values : 0 OK"));
}

TEST_CASE("every fault is found with every collective") {
    const Expected& program = GENERATE(from_range(expected));
    const std::string fault = GENERATE("corrupt", "misplace", "overrun", "swap", "scribble", "intrude");
    // Nothing to exchange, or no rank without a use for a receive buffer.
    const bool several = program.name == "all_gather" || program.name == "alltoall" || program.name == "alltoallv" ||
                         program.name == "gather";
    if (fault == "swap" && !several) return;
    if (fault == "intrude" && program.name != "gather" && program.name != "reduce") return;
    const Run wrong = over_fake(program, size_flags(program, 3), fault);
    INFO(program.name << ' ' << fault << '\n' << wrong.output);
    CHECK(wrong.status == 1);
    CHECK_THAT(wrong.output, Contains("FAILED"));
    const std::vector<std::string> words = words_of_line(wrong.output);
    REQUIRE(words.size() == 13);
    CHECK(words[8] != "0");  // out of place; in place others stand beside what is written
    if (fault == "corrupt") {
        CHECK(words[8] == "1");
        CHECK(words[12] == (program.in_place ? "1" : "N/A"));
    }
}

TEST_CASE("a line shows the size of the whole, the elements of a part, reduction and root") {
    const Expected& program = GENERATE(from_range(expected));
    const std::vector<std::string> words = words_of_line(over_fake(program, "-t 4 -b 65540 -e 65540 -n 1 -r 0").output);
    INFO(program.name);
    REQUIRE(words.size() == 13);
    CHECK(words[0] == (program.parted ? "65536" : "65540"));
    CHECK(words[1] == (program.parted ? "4096" : "16385"));
    CHECK(words[2] == "float");
    CHECK(words[3] == (program.reduces ? "sum" : "none"));
    CHECK(words[4] == (program.rooted ? "0" : "-1"));
    CHECK(std::stod(words[7]) == Approx(std::stod(words[6]) * program.bus_factor_of_4).margin(0.011));
    CHECK((words[9] == "N/A") == !program.in_place);
}

TEST_CASE("bus bandwidth is the row's share of algorithm bandwidth, to many digits") {
    const Expected& program = GENERATE(from_range(expected));
    const std::string path = "/tmp/weft-rows-" + std::to_string(getpid()) + ".json";
    over_fake(program, "-t 4 -b 64K -e 64K -n 1 -J " + path);
    const Run file = run_command("cat " + path + "; rm " + path);
    const auto row = nlohmann::json::parse(file.output)["results"][0];
    INFO(program.name);
    CHECK(row["out_of_place"]["bus_bw"].get<double>() ==
          Approx(row["out_of_place"]["alg_bw"].get<double>() * program.bus_factor_of_4));
    CHECK(row["in_place"].is_null() == !program.in_place);
}

TEST_CASE("sizes below an element of each part are rows without data, or one element each by bench.h's method") {
    const Expected& program = GENERATE(from_range(expected));
    INFO(program.name);
    const std::vector<std::string> words = words_of_line(over_fake(program, "-t 4 -b 8 -e 8 -n 1").output);
    REQUIRE(words.size() == 13);
    CHECK(words[0] == (program.parted ? "0" : "8"));
    const Run lines = over_fake(program, "-t 4 --json-lines weft --sizes 8 --seconds 0.002");
    INFO(lines.output);
    CHECK(lines.status == 0);
    const auto line = nlohmann::json::parse(lines.output);
    CHECK(line["collective"] == program.bench_name);
    CHECK(line["bytes"] == 8);
    CHECK(line["ok"] == true);
}

TEST_CASE("flags without meaning for a collective are reported, and roots that do not exist refused") {
    for (const Expected& program : expected) {
        const Run run = over_fake(program, "-t 2 -b 64 -e 64 -n 1 -o max -r 1");
        INFO(program.name << '\n' << run.output);
        CHECK(run.status == 0);
        CHECK(lines_with(run.output, "-o changes nothing") == (program.reduces ? 0 : 1));
        CHECK(lines_with(run.output, "-r 1 changes nothing") == (program.rooted ? 0 : 1));
        const Run absent = over_fake(program, "-t 2 -b 64 -e 64 -n 1 -r 2");
        CHECK(absent.status == (program.rooted ? 2 : 0));
        const Run shown = over_fake(program, "-t 2 -b 64 -e 64 -n 1 --show algo");
        CHECK((shown.status == 0 || lines_with(shown.output, "no algorithm is chosen here") == 1));
        const Run regret = over_fake(program, "-t 2 -b 64 -e 64 --regret --seconds 0.001");
        CHECK(regret.status == shown.status);
    }
}

TEST_CASE("a ping-pong of one rank is refused") {
    const Run run = run_command(FAKES "/pingpong_perf_fake -t 1 -b 8 -e 8");
    CHECK(run.status == 2);
    CHECK_THAT(run.output, Contains("one rank has no partner"));
}

TEST_CASE("results that cannot be written are a sentence and a status other than 0, with every collective") {
    for (const Expected& program : expected) {
        for (const std::string& arguments : {size_flags(program, 2), std::string("-h")}) {
            const Run run = run_command(real(program) + " " + arguments + " 2>&1 >/dev/full #");
            INFO(program.name << " " << arguments << "\n" << run.output);
            CHECK(run.status == 1);
            CHECK_THAT(run.output, Contains("No space left on device"));
        }
        CHECK(run_command(real(program) + " " + size_flags(program, 2) + " >/dev/full 2>/dev/full #").status == 1);
        CHECK(run_command(real(program) + " " + "--nonsense 2>/dev/full #").status == 2);
    }
    for (const std::string arguments : {"/train_perf -t 2 -n 2 -m 1 -l 7", "/init_perf -n 1 -r 1", "/train_perf -h",
                                        "/init_perf -h", "/train_perf --nonsense", "/init_perf --nonsense"}) {
        const bool wrong = arguments.ends_with("--nonsense");
        const Run run = run_command(REAL + arguments + " 2>&1 >/dev/full #");
        INFO(arguments << "\n" << run.output);
        CHECK(run.status == (wrong ? 2 : 1));
        CHECK_THAT(run.output, Contains(wrong ? "--nonsense" : "No space left on device"));
    }
}

TEST_CASE("every collective passes over Weft, with ranks as threads") {
    const Expected& program = GENERATE(from_range(expected));
    const std::string ranks = GENERATE("2", "3");
    const Run run = run_command(real(program) + " -t " + ranks + " -b 4 -e 400000 -f 10 -n 2 -r -1");
    INFO(program.name << '\n' << run.output);
    CHECK(run.status == 0);
    CHECK_THAT(run.output, Contains("# Out of bounds values : 0 OK"));
}

#if defined(LAUNCHER)
TEST_CASE("every collective passes over Weft, with ranks as processes") {
    const Expected& program = GENERATE(from_range(expected));
    const std::string ranks = GENERATE("2", "3");
    const std::string flags = GENERATE("", " -R 1", " -u 1 -d int8");
    if (small() && (program.name.size() + flags.size() + (ranks == "2")) % 2 != 0) return;
    const Run run =
        run_command(LAUNCHER " run -n " + ranks + " " + real(program) + " -b 4 -e 400000 -f 10 -n 2 -r -1" + flags);
    INFO(program.name << '\n' << run.output);
    CHECK(run.status == 0);
    CHECK_THAT(run.output, Contains("# Out of bounds values : 0 OK"));
}
TEST_CASE("weft perf lists and starts every benchmark") {
    const Run list = run_command(LAUNCHER " perf");
    INFO(list.output);
    CHECK(list.output.find("not installed") == std::string::npos);
    std::vector<std::string> names = {"train", "init"};
    for (const Expected& program : expected) names.push_back(program.name);
    CHECK(lines_with(list.output, "_perf\n") == int(names.size()));
    for (const std::string& name : names) {
        const Run help = run_command(LAUNCHER " perf " + name + " -h");
        INFO(name << '\n' << help.output);
        CHECK(help.status == 0);
        CHECK_THAT(help.output, Contains("--"));
    }
}
TEST_CASE("if the kernel refuses any system call, ranks work without it or end with an error") {
    INFO("seed " << seed());
    std::mt19937 random(seed());
    for (const std::string call :
         {"clone3", "epoll_create1", "eventfd2", "fallocate", "getrandom", "madvise", "membarrier", "memfd_create",
          "ppoll", "process_vm_readv", "process_vm_writev", "rseq", "sched_getaffinity", "timerfd_create"})
        for (const std::string error : {"ENOSYS", "EPERM"}) {
            const std::string refuse = REFUSE " " + error + " " + call + " ";
            const std::string flags = "/sendrecv_perf -b 8 -e 4M -f 524288 -n 1 -w 0";
            for (const std::string& command :
                 {refuse + REAL + flags + " -t 2", LAUNCHER " run -n 2 --grace 0.2 " + refuse + REAL + flags,
                  "WEFT_TRANSPORTS=tcp " LAUNCHER " run -n 2 --grace 0.2 " + refuse + REAL + flags}) {
                if (small() && random() % 3 != 0) continue;
                const Run run = run_command("timeout 60 env " + command);
                INFO(command << "\n" << run.output);
                CHECK(
                    (run.status == 0 || (run.status == 1 && run.output.find("sendrecv_perf: ") != std::string::npos)));
            }
        }
}
TEST_CASE("--regret knows every candidate of a collective over Weft") {
    const Run run = run_command(LAUNCHER " run -n 3 " REAL "/broadcast_perf -b 4K -e 4K --regret --seconds 0.01");
    INFO(run.output);
    CHECK(run.status == 0);
    for (const char* name : {"one_shot", "binomial_tree", "linear", "ring", "scatter_all_gather", "double_binary_tree"})
        CHECK_THAT(run.output, Contains(" " + std::string(name) + " "));
    CHECK_THAT(run.output, Contains("# Out of bounds values : 0 OK"));
}
#endif

#if defined(FAKE_CUDA_KERNELS)
const std::string gpus_with_kernels =
    "WEFT_CUDA_LIBRARY=" FAKE_CUDA_LIBRARY " FAKE_CUDA_KERNELS=" FAKE_CUDA_KERNELS " FAKE_CUDA='gpus 4; leaks fatal' ";

Run on_gpus(const Expected& program, const std::string& arguments) {
    return run_command(gpus_with_kernels + real(program) + " " + arguments);
}
TEST_CASE("every fault in a GPU's memory is counted there, with every collective, element by element") {
    for (const Expected& program : expected)
        for (const std::string fault : {"corrupt", "overrun", "scribble", "intrude"}) {
            if (fault == "intrude" && program.name != "gather" && program.name != "reduce") continue;
            // Three ranks as on the host; GPUs in the threads' place.
            std::string flags = size_flags(program, 3);
            flags.replace(0, 4, "-g 3");
            const Run wrong = run_command(gpus_with_kernels + "FAKE_WEFT=" + fault + " " FAKES "/" + program.name +
                                          "_perf_fake " + flags);
            INFO(program.name << ' ' << fault << '\n' << wrong.output);
            CHECK(wrong.status == 1);
            CHECK_THAT(wrong.output, Contains("# Results are checked on the GPUs\n") && Contains("FAILED"));
            const std::vector<std::string> words = words_of_line(wrong.output);
            REQUIRE(words.size() == 13);
            // As many as on the host.
            CHECK(words[8] == words_of_line(over_fake(program, size_flags(program, 3), fault).output).at(8));
            CHECK(words[8] != "0");
        }
}
TEST_CASE("every collective passes on buffers of GPUs, from every root, as calls and as graphs") {
    for (const Expected& program : expected) {
        for (const char* flags : {"-g 2", "-g 1 --ranks-per-gpu 3", "-g 3 -G 2", "-g 3 -R 1",
                                  "-g 3 -R 1 --plain-memory", "-g 2 -p 1", "-g 2 -y 1"}) {
            if (small() && (program.name.size() + std::string(flags).size()) % 2 != 0) continue;
            // Without buffers and with stream NULL a wait for signals is one on the host.
            if (program.name == "put" && std::string(flags) == "-g 2 -y 1") continue;
            const Run run = on_gpus(program, std::string(flags) + " -b 12 -e 1200000 -f 100 -n 2 -r -1");
            INFO(program.name << ' ' << flags << '\n' << run.output);
            CHECK(run.status == 0);
            CHECK_THAT(run.output, Contains("# Out of bounds values : 0 OK"));
        }
    }
}
#endif
