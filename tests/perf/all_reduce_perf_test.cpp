// all_reduce_perf_test.cpp: the tool from the outside, over libraries made up to be right or wrong: the check must find
// what is wrong and must not cry where nothing is.
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/amount.hpp"
#include "tests/catch.hpp"
#include "tests/perf/run_program.hpp"

using Catch::Contains;

namespace {

// FAKE is one of fake_weft.cpp's faults, or none: right.
Run run(const std::string& fake, const std::string& arguments, const std::string& environment = "") {
    return run_command(environment + " FAKE_WEFT=" + fake + " " FOLDER "/all_reduce_perf_fake " + arguments);
}

// With few iterations, which --stat median-max counts by itself.
std::string with_iterations(const std::string& flags) {
    return flags.find("--stat") == std::string::npos ? flags + " -n 2" : flags;
}

}  // namespace

TEST_CASE("a right library passes with every type and reduction") {
    const int ranks = GENERATE(1, 3, 8);
    const Run all = run("right", "-t " + std::to_string(ranks) + " -b 1000 -e 1000 -n 1 -w 0 -d all -o all");
    INFO(all.output.substr(all.output.find("# Out of")));
    CHECK(all.status == 0);
    // Bit operations on the six integer types.
    CHECK(lines_with(all.output, "\n        1000  ") == 12 * 6 + 6 * 3);
    CHECK_THAT(all.output, Contains("# Out of bounds values : 0 OK"));
}

#if WEFT_CUDA
const std::string gpus = "WEFT_CUDA_LIBRARY=" FAKE_CUDA_LIBRARY " FAKE_CUDA='gpus 4; leaks fatal'";

#if defined(NCCL_TOOL)
TEST_CASE("the benchmark runs over a libnccl as over Weft, and names missing functions") {
    const std::string nccl =
        gpus + " FAKE_CUDA_KERNELS=" FAKE_CUDA_KERNELS " PERF_NCCL_LIBRARY=" FAKE_NCCL_LIBRARY " " NCCL_TOOL " ";
    for (const char* flags : {"-g 1", "-g 2", "-g 1 --ranks-per-gpu 3", "-g 2 -G 2", "-g 2 -R 1",
                              "-g 2 -R 1 --plain-memory", "-g 2 -p 1"}) {
        const Run one = run_command(nccl + "-b 4 -e 40000 -f 100 -n 2 --show algo " + flags);
        INFO(flags << '\n' << one.output);
        CHECK(one.status == 0);
        CHECK_THAT(one.output, Contains("# NCCL headers=") && Contains("library=23007") && Contains(" nccl "));
        CHECK_THAT(one.output, Contains("# Out of bounds values : 0 OK"));
    }
    const Run scaled = run_command(nccl + "-b 400 -e 400 -n 2 -g 2 -o all -d float");
    CHECK(scaled.status == 0);
    const Run host = run_command(nccl + "-b 4 -e 4 -t 2");
    CHECK(host.status != 0);
    CHECK_THAT(host.output, Contains("-g 1 or more"));
    const Run none = run_command(gpus + " PERF_NCCL_LIBRARY=/no/such/libnccl.so.2 " NCCL_TOOL " -g 1 -b 8 -e 8");
    CHECK(none.status != 0);
    CHECK_THAT(none.output, Contains("no NCCL: /no/such/libnccl.so.2") && Contains("PERF_NCCL_LIBRARY"));
}
#endif

TEST_CASE("a right library passes on buffers of GPUs, with every way to run there") {
    for (const char* flags :
         {"-g 1", "-g 4", "-t 2 -g 2", "-g 2 --ranks-per-gpu 3", "-g 2 -p 1", "-g 2 -m 3", "-g 2 -z 1", "-g 2 -z 3",
          "-g 2 -I 1", "-g 2 -y 1", "-g 2 -u 1", "-g 2 -G 3", "-g 2 --stat median-max --seconds 0.001"}) {
        const Run one = run("right", "-b 4 -e 400 -f 10 " + with_iterations(flags), gpus);
        INFO(flags << one.output);
        CHECK(one.status == 0);
        CHECK_THAT(one.output, Contains(" device  0 [0000:") && Contains("# Out of bounds values : 0 OK"));
    }
    const Run shared = run("right", "-b 8 -e 8 -g 2 --ranks-per-gpu 2", gpus);
    CHECK(lines_with(shared.output, " device  1 [0000:") == 2);
}

#if defined(FAKE_CUDA_KERNELS)
TEST_CASE(
    "on buffers of GPUs that run kernels a right library passes with every type and reduction, and a wrong one not") {
    const std::string kernels = gpus + " FAKE_CUDA_KERNELS=" FAKE_CUDA_KERNELS;
    for (const char* flags : {"", " -u 1", " -u 3 -y 1"}) {
        if (weft::internal::test::small() && *flags) continue;
        const Run all =
            run("right", "-g 3 -b 1000 -e 100000 -f 100 -n 1 -w 0 -d all -o all" + std::string(flags), kernels);
        INFO(all.output);
        CHECK(all.status == 0);
        CHECK_THAT(all.output,
                   Contains("# Results are checked on the GPUs\n") && Contains("# Out of bounds values : 0 OK"));
    }
    for (const char* type :
         {"float -b 4000 -e 4000", "int8 -b 1000 -e 1000", "half -b 2000 -e 2000", "uint64 -b 8000 -e 8000"}) {
        const Run wrong = run("corrupt", "-g 2 -n 1 -u 1 -d " + std::string(type), kernels);
        INFO(wrong.output);
        CHECK(wrong.status == 1);
        CHECK_THAT(wrong.output, Contains("# Out of bounds values : 2 FAILED"));
    }
}
#endif

TEST_CASE("wrong elements in a GPU's memory are found on the host") {
    for (const char* fake : {"corrupt", "misplace", "overrun"}) {
        const Run one = run(fake, "-g 3 -b 4000 -e 4000 -n 1", gpus);
        INFO(fake << one.output);
        CHECK(one.status == 1);
        CHECK_THAT(one.output, Contains("FAILED"));
    }
}

TEST_CASE("without kernels on a GPU results are checked on the host, and the reason is printed") {
    const Run without = run("right", "-g 2 -b 4000 -e 4000 -n 1", gpus);
    CHECK(without.status == 0);
    CHECK_THAT(without.output, Contains("# Results are copied to the host to be checked: "));
    CHECK_THAT(run("right", "-g 2 -b 4000 -e 4000 -n 1 -c 0", gpus).output, !Contains("# Results"));
    CHECK_THAT(run("right", "-t 2 -b 4000 -e 4000 -n 1").output, !Contains("# Results"));
#if defined(FAKE_CUDA_KERNELS)
    const std::string kernels = "FAKE_CUDA_KERNELS=" FAKE_CUDA_KERNELS " WEFT_CUDA_LIBRARY=" FAKE_CUDA_LIBRARY;
    const Run old = run("corrupt", "-g 2 -b 4000 -e 4000 -n 1", kernels + " FAKE_CUDA='gpus 2; version 12080'");
    INFO(old.output);
    CHECK(old.status == 1);
    CHECK_THAT(old.output, Contains("to be checked: CUDA could not load ") &&
                               Contains("the driver supports CUDA 12.8") && Contains("values : 2 FAILED"));
#endif
}

TEST_CASE("GPUs that are not there are missed with a sentence") {
    const Run few = run("right", "-g 5 -b 8 -e 8", gpus);
    CHECK(few.status == 1);
    CHECK_THAT(few.output, Contains("a rank wants GPU 4, and there are 4"));
    const Run none = run("right", "-g 1 -b 8 -e 8", "WEFT_CUDA_LIBRARY=none");
    CHECK(none.status == 1);
    CHECK_THAT(none.output, Contains("WEFT_CUDA_LIBRARY"));
}
#endif

TEST_CASE("a right library passes with every way to run") {
    for (const char* flags : {"-p 1", "-m 3", "-z 1", "-z 3", "-R 1", "-u 1", "-a 0", "-a 2", "-c 3", "-N 2", "-T 5",
                              "-I 1", "-y 1", "--stat median-max --seconds 0.001"}) {
        const Run one = run("right", "-t 2 -b 4 -e 400 -f 10 " + with_iterations(flags));
        INFO(flags << one.output);
        CHECK(one.status == 0);
        CHECK_THAT(one.output, Contains("# Out of bounds values : 0 OK"));
    }
}

TEST_CASE("one wrong bit in one element of one rank is found, out of place and in place") {
    for (const char* type : {"float", "int8", "f8e4m3", "bfloat16", "uint64"}) {
        const size_t bytes = std::string(type) == "uint64"     ? 8000
                             : std::string(type) == "float"    ? 4000
                             : std::string(type) == "bfloat16" ? 2000
                                                               : 1000;
        const std::string size = std::to_string(bytes);
        const Run wrong = run("corrupt", "-t 2 -b " + size + " -e " + size + " -n 1 -d " + type);
        INFO(wrong.output);
        CHECK(wrong.status == 1);
        CHECK(lines_with(wrong.output, "       1\n") == 1);
        CHECK_THAT(wrong.output, Contains("# Out of bounds values : 2 FAILED"));
    }
}

TEST_CASE("blocks in each other's place are found") {
    const Run wrong = run("misplace", "-t 2 -b 4000 -e 4000 -n 1");
    CHECK(wrong.status == 1);
    CHECK_THAT(wrong.output, Contains("FAILED"));
}

TEST_CASE("a byte written behind the buffer is found") {
    const Run wrong = run("overrun", "-t 2 -b 4000 -e 4000 -n 1");
    CHECK(wrong.status == 1);
    CHECK_THAT(wrong.output, Contains("# Out of bounds values : 2 FAILED"));
}

TEST_CASE("without a check nothing is called right or wrong") {
    const Run unchecked = run("corrupt", "-t 2 -b 4000 -e 4000 -n 1 -c 0");
    CHECK(unchecked.status == 0);
    CHECK(lines_with(unchecked.output, "N/A") == 2);
}

TEST_CASE("a failed call ends the run with the library's sentence and the rank") {
    const Run failed = run("failure", "-t 2 -b 4000 -e 4000 -n 1");
    CHECK(failed.status == 1);
    CHECK_THAT(failed.output, Contains("all_reduce_perf: rank 0: the measured call: rank 1 died in all_reduce"));
    CHECK_THAT(failed.output, !Contains("Out of bounds"));
}

TEST_CASE("memory that cannot be had is refused before the system is driven to kill someone") {
    const Run refused = run("right", "-t 2 -b 1000000G -e 1000000G");
    INFO(refused.output);
    CHECK(refused.status == 1);
    CHECK_THAT(refused.output, Contains("rank 0: the buffers of all ranks on ") && Contains(": lower -e"));
}

TEST_CASE("lines for the peers' comparison have bench.h's fields") {
    const Run lines = run("right", "-t 2 --json-lines weft --sizes '8 1K' --seconds 0.002");
    CHECK(lines.status == 0);
    const auto first = nlohmann::json::parse(lines.output.substr(0, lines.output.find('\n')));
    CHECK(first.size() == 9);
    CHECK(first["peer"] == "weft");
    CHECK(first["version"] == "Weft 0.1.0");
    CHECK(first["collective"] == "allreduce");
    CHECK(first["nranks"] == 2);
    CHECK(first["bytes"] == 8);
    CHECK(first["min_us"] <= first["median_us"]);
    CHECK(first["iters"] >= 3);
    CHECK(first["ok"] == true);
    CHECK(lines_with(lines.output, "\n") == 2);
    const Run quoted = run("right", "-t 2 --json-lines 'a\"b\xe9' --sizes 8 --seconds 0.002");
    CHECK(quoted.status == 0);
    CHECK(nlohmann::json::parse(quoted.output)["peer"] == "a\"b\uFFFD");
    const Run wrong = run("corrupt", "-t 2 --json-lines weft --sizes 4000 --seconds 0.002");
    CHECK(wrong.status == 1);
    CHECK_THAT(wrong.output, Contains("\"ok\":false"));
}

TEST_CASE("the chosen algorithm is shown on request, however long the explanation") {
    CHECK_THAT(run("right", "-t 2 -b 8 -e 8 --show algo").output, Contains("  one-shot        shm\n"));
}

TEST_CASE("--regret runs every algorithm that can serve, and no other") {
    const Run all = run("right", "-t 2 -b 8 -e 4000 -f 500 --regret --seconds 0.001");
    INFO(all.output);
    CHECK(all.status == 0);
    CHECK(lines_with(all.output, "  one-shot ") >= 2);
    CHECK(lines_with(all.output, " ring ") >= 2);
    CHECK(lines_with(all.output, " tree ") == 0);
    CHECK_THAT(all.output, Contains("# Regret               : mean ") && Contains("# Out of bounds values : 0 OK"));
}

TEST_CASE("--regret finds an algorithm that is wrong, though another one is chosen") {
    const Run one = run("corrupt_ring", "-t 2 -b 4000 -e 4000 --regret --seconds 0.001");
    CHECK(one.status == 1);
    CHECK_THAT(one.output, Contains("# Out of bounds values : 1 FAILED"));
    CHECK(run("corrupt_ring", "-t 2 -b 4000 -e 4000 -n 1").status == 0);
}

TEST_CASE("JSON has the results of --regret, too") {
    const std::string path =
        std::filesystem::temp_directory_path() / ("weft-regret-" + std::to_string(getpid()) + ".json");
    CHECK(run("right", "-t 2 -b 8 -e 16 -f 2 --regret --seconds 0.001 -J " + path).status == 0);
    std::ifstream file(path);
    const auto json = nlohmann::json::parse(file);
    std::filesystem::remove(path);
    REQUIRE(json["results"].size() == 2);
    const auto& row = json["results"][1];
    CHECK(row["chosen"] == "one-shot");
    CHECK(row["candidates_us"].size() == 2);
    CHECK(row["chosen_us"] == row["candidates_us"]["one-shot"]);
    CHECK(row["nwrong"] == 0);
    CHECK(json["regret"]["worst_percent"].get<double>() >= json["regret"]["mean_percent"].get<double>());
}

TEST_CASE("the current measurement is shown on a terminal, and is wiped before anything else is printed") {
    Terminal terminal;
    const std::string command = "FAKE_WEFT=right " FOLDER "/all_reduce_perf_fake -t 2 -b 8 -e 16 -f 2 -n 2";
    const Run shown = run_command("(" + command + " 2>" + terminal.name() + ")");
    CHECK(shown.status == 0);
    const std::string progress = terminal.read();
    INFO(progress);
    for (const char* row : {"all_reduce_perf float sum, 8 bytes: out of place ...", "16 bytes: in place ..."})
        CHECK(lines_with(progress, row) == 1);
    // Written over by as many spaces, each of the four.
    CHECK(progress.back() == '\r');
    CHECK(lines_with(progress, " \r") == 4);
    CHECK(lines_with(progress, "\r ") == 4);
    // Standard output has the table alone; the same where there is no terminal, and nothing else then.
    CHECK(lines_with(shown.output, "\n           8  ") == 1);
    CHECK(lines_with(shown.output, "\n          16  ") == 1);
    CHECK(lines_with(shown.output, "place ...") == 0);
    CHECK(lines_with(shown.output, "\r") == 0);
    CHECK(run_command("(" + command + " >/dev/null)").output.empty());
    CHECK(lines_with(run_command(command).output, "place ...") == 0);
}

TEST_CASE("JSON holds the arguments, the ranks and the rows, and an old file is kept") {
    const std::string path =
        std::filesystem::temp_directory_path() / ("weft-perf-" + std::to_string(getpid()) + ".json");
    for (const std::string& written : {path, path + ".0"}) {
        const Run run_with_json = run("right", "-t 2 --sizes 8,16 -M 1 -J " + path);
        CHECK_THAT(run_with_json.output, Contains("# Writing JSON output to " + written));
        std::ifstream file(written);
        const auto json = nlohmann::json::parse(file);
        CHECK(json["args"].size() == 9);
        CHECK(json["config"]["nthreads"] == 2);
        CHECK(json["config"]["ngpus"] == 0);
        CHECK(json["config"]["minimum_bytes"] == 8);
        CHECK(json["config"]["maximum_bytes"] == 16);
        CHECK(json["config"]["devices"][1]["rank"] == 1);
        REQUIRE(json["results"].size() == 2);
        CHECK(json["results"][1]["size"] == 16);
        CHECK(json["results"][1]["in_place"]["nwrong"] == 0);
        CHECK(json["out_of_bounds"]["okay"] == "true");
        CHECK(json["memory"]["total"] == 5120);
        CHECK(json["errors"].empty());
        CHECK_FALSE(json.contains("env"));
    }
    std::filesystem::remove(path);
    std::filesystem::remove(path + ".0");
    // Arguments may hold bytes that are not UTF-8.
    const std::string odd = path + "\xe9";
    CHECK(run("right", "-t 2 --sizes 8 -J " + odd).status == 0);
    std::ifstream odd_file(odd);
    CHECK(nlohmann::json::parse(odd_file)["args"][6] == path + "\uFFFD");
    std::filesystem::remove(odd);
    // A limit of a file's size stands for a full disk: a partly written file is removed.
    const Run full =
        run_command("trap '' XFSZ; ulimit -f 0; FAKE_WEFT=right " FOLDER "/all_reduce_perf_fake -t 2 -b 8 -e 8 -J " +
                    path + " 2>&1 >/dev/null #");
    CHECK(full.status == 1);
    CHECK_THAT(full.output, Contains("-J " + path + ": it could not be written: "));
    CHECK_FALSE(std::filesystem::exists(path));
    const Run refused = run("right", "-t 2 -b 8 -e 8 -J /nonexistent/file.json");
    CHECK(refused.status == 2);
    CHECK_THAT(refused.output, Contains("-J /nonexistent/file.json"));
}
