#include "tools/tune_command.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <memory>
#include <string>

#include "src/base/fd.hpp"
#include "src/base/file.hpp"
#include "src/base/options.hpp"
#include "src/base/printing.hpp"
#include "src/control/agreed_texts.hpp"
#include "src/registry.hpp"
#include "src/selector/tuning_file.hpp"
#include "src/selector/tuning_text.hpp"
#include "tools/tune_judgement.hpp"
#include "tools/tune_ranks.hpp"
#include "topology/detect/container.hpp"

namespace weft::internal::tools {
namespace {

// The options of the command line.
struct TuneRequest {
    std::string file = "weft-tune.json";
    double seconds = 60;
    std::string ranks = "2 4 8", transports = "shm tcp", collectives, least = "8", most = "64M";
    bool is_rank = false;  // started by `weft tune` itself
};

std::vector<std::string> words_of(const std::string& list) {
    std::vector<std::string> words(1);
    for (const char letter : list) {
        if (letter == ' ' || letter == ',')
            words.emplace_back();
        else
            words.back() += letter;
    }
    std::erase(words, "");
    return words;
}

// The checked plan of the measurements.
struct Plan {
    TuneWork work;
    std::vector<Arrangement> arrangements;
};

Result<size_t> size_of_option(const char* option, const std::string& text) {
    const auto bytes = parse_integer(text, true);
    if (!bytes || *bytes < 8 || *bytes > int64_t(1) << 40)
        return fail(error::command_option, "{} {} is not a size from 8 to 1T; give bytes, with K, M or G", option,
                    text);
    return size_t(*bytes);
}

Status read_collectives(const std::string& list, std::vector<Collective>& collectives) {
    for (const std::string& word : words_of(list)) {
        const auto named = collective_named(word);
        if (!named ||
            std::find(std::begin(all_collectives), std::end(all_collectives), *named) == std::end(all_collectives))
            return fail(error::command_option,
                        "--collectives: {} is not a collective with a choice of algorithms; all_reduce and "
                        "broadcast are (docs/guide/tuning.md)",
                        word);
        collectives.push_back(*named);
    }
    if (collectives.empty()) collectives.assign(std::begin(all_collectives), std::end(all_collectives));
    return ok();
}

Result<Plan> plan_of(const TuneRequest& request) {
    constexpr int ranks_most = 1024;
    Plan plan;
    for (const auto& [option, text, bytes] : {std::tuple{"--least", request.least, &plan.work.least_bytes},
                                              std::tuple{"--most", request.most, &plan.work.most_bytes}}) {
        auto size = size_of_option(option, text);
        if (!size) return size.take_status();
        *bytes = *size;
    }
    if (plan.work.least_bytes > plan.work.most_bytes)
        return fail(error::command_option, "--least {} is above --most {}", request.least, request.most);
    WEFT_TRY(read_collectives(request.collectives, plan.work.collectives));
    for (const std::string& transport : words_of(request.transports)) {
        if (transport != "shm" && transport != "tcp")
            return fail(error::command_option, "--transports: {} is neither shm nor tcp", transport);
        for (const std::string& word : words_of(request.ranks)) {
            const auto ranks = parse_integer(word);
            if (!ranks || *ranks < 2 || *ranks > ranks_most)
                return fail(error::command_option, "--ranks: {} is not a number of ranks from 2 to {}", word,
                            ranks_most);
            plan.arrangements.push_back({int(*ranks), transport == "shm" ? 1 : int(*ranks), {}});
        }
    }
    if (plan.arrangements.empty())
        return fail(error::command_option,
                    "--ranks and --transports need at least one value each, as in --ranks \"2 4\"");
    plan.work.seconds = request.seconds / double(plan.arrangements.size());
    return plan;
}

// The ranks' environment has no tuning and no other setting that would choose algorithms. The file records whether
// kernels copy between ranks, so the ranks have this process's value of that option.
// The ranks are one host, or each is its own host and uses the loopback interface.
std::vector<std::string> environment_of(const Arrangement& arrangement) {
    const std::vector<std::string> ours = {
        "WEFT_TUNE_FILE=none", std::string("WEFT_TRANSPORTS=") + arrangement.transport(), "WEFT_SOCKET_IFNAME==lo",
        fmt::format("WEFT_CROSS_MEMORY={}", options().cross_memory)};
    std::vector<std::string> variables = ours;
    for (const std::string& variable : whole_environment()) {
        const std::string name = variable.substr(0, variable.find('=') + 1);
        const auto replaced = [&](const std::string& own) { return own.starts_with(name); };
        const bool of_library = name.starts_with("WEFT_") || name.starts_with("NCCL_");
        const bool harmless = name.starts_with("WEFT_DEBUG") || name.starts_with("NCCL_DEBUG");
        if ((!of_library || harmless) && std::none_of(ours.begin(), ours.end(), replaced))
            variables.push_back(variable);
    }
    return variables;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
    std::vector<char*> all;
    for (std::string& text : texts) all.push_back(text.data());
    all.push_back(nullptr);
    return all;
}

// `weft run` with this program as the ranks.
std::vector<std::string> command_of(const std::string& self, const Arrangement& arrangement, const TuneWork& work) {
    std::string collectives;
    for (const Collective collective : work.collectives) collectives += fmt::format("{} ", name_of(collective));
    return {self,
            "run",
            "-n",
            std::to_string(arrangement.ranks),
            self,
            "tune",
            "--as-rank",
            "--seconds",
            fmt::format("{:.6f}", work.seconds),
            "--collectives",
            collectives,
            "--least",
            std::to_string(work.least_bytes),
            "--most",
            std::to_string(work.most_bytes)};
}

// Starts the ranks, with `output` as their standard output.
Result<pid_t> start(const Arrangement& arrangement, const TuneWork& work, int output) {
    char path[4096] = {};
    if (readlink("/proc/self/exe", path, sizeof path - 1) <= 0)
        return fail(error::file_unreadable, "/proc/self/exe cannot be read: {}", errno_text(errno));
    std::vector<std::string> words = command_of(path, arrangement, work), variables = environment_of(arrangement);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
    pid_t pid = -1;
    const int error = posix_spawn(&pid, path, &actions, nullptr, pointers(words).data(), pointers(variables).data());
    posix_spawn_file_actions_destroy(&actions);
    if (error != 0) return fail(error::system_call, "{} cannot be started: {}", path, errno_text(error));
    return pid;
}

// Reads until the other end is closed.
void take_times(int source, Arrangement& arrangement) {
    std::string line;
    char buffer[65536];
    for (ssize_t length; (length = read(source, buffer, sizeof buffer)) > 0 || (length < 0 && errno == EINTR);)
        for (ssize_t i = 0; i < length; ++i) {
            if (buffer[i] != '\n') {
                line += buffer[i];
                continue;
            }
            if (TunedTime time; TunedTime::read(line, time)) arrangement.times.push_back(time);
            if (const auto apart = read_apart(line)) arrangement.apart = apart;
            line.clear();
        }
}

Status measure(Arrangement& arrangement, const TuneWork& work) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return fail(error::system_call, "a pipe cannot be made: {}", errno_text(errno));
    Fd source(ends[0]), target(ends[1]);
    const auto pid = start(arrangement, work, target.number());
    if (!pid) return pid.status().copy();
    target.reset();
    take_times(source.number(), arrangement);
    int status = 0;
    while (waitpid(*pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (status != 0 || arrangement.times.empty())
        return fail(error::command_system, "{} ranks over {} could not be measured; the lines above name the cause",
                    arrangement.ranks, arrangement.transport());
    return ok();
}

// Checks the file before the measurement of a minute. The file keeps its content until the end.
Status check_output_file(const std::string& name) {
    const bool there = access(name.c_str(), F_OK) == 0;
    std::FILE* file = std::fopen(name.c_str(), "a");
    if (!file) return fail(error::file_unwritable, "-o {}: the file cannot be written: {}", name, errno_text(errno));
    std::fclose(file);
    if (!there) unlink(name.c_str());
    return ok();
}

// Checks before the measurement that the tuning fits: rank 0 sends it to all others, which accept a limited size.
// The check counts every time that could be measured.
Status check_length(const Plan& plan) {
    Tuning longest = tuning_of_here();
    for (const Arrangement& arrangement : plan.arrangements)
        for (const Algorithm& row : registry::algorithms()) {
            const auto& wanted = plan.work.collectives;
            if (std::find(wanted.begin(), wanted.end(), row.collective) == wanted.end()) continue;
            if (row.refusal(layout_in_blocks(arrangement.ranks, arrangement.hosts))) continue;
            Tuning::Curve curve{row.collective, row.name, arrangement.ranks, arrangement.hosts, {}};
            const bool sized = row.collective != Collective::barrier;
            for (const TunedSize& size : tuned_sizes(plan.work))
                if (!size.held_out && (sized || curve.points.empty())) curve.points.push_back({size.bytes, 1234});
            longest.curves.push_back(std::move(curve));
        }
    const size_t bytes = tuning_text(longest).size(), most = AgreedTexts::tuning_bytes_most;
    if (bytes <= most) return ok();
    return fail(error::command_option,
                "the file could have {} KiB, but a rank reads at most {} KiB; name fewer numbers of ranks, fewer "
                "collectives, or a smaller range of sizes with --ranks, --collectives, --least and --most",
                bytes >> 10, most >> 10);
}

Status run_tune(const TuneRequest& request) {
    auto plan = plan_of(request);
    if (!plan) return plan.take_status();
    WEFT_TRY(check_length(*plan));
    WEFT_TRY(check_output_file(request.file));
    for (Arrangement& arrangement : plan->arrangements) {
        print_output("measures {} ranks over {}, about {:.0f} s\n", arrangement.ranks, arrangement.transport(),
                     plan->work.seconds);
        WEFT_TRY(output_status());
        WEFT_TRY(measure(arrangement, plan->work));
    }
    Tuning here = tuning_of_here();
    here.cores = topology::usable_cores();
    const Tuning tuning = tuning_of_times(std::move(here), plan->arrangements);
    if (Status written = write_file(request.file, tuning_text(tuning)); !written) {
        print_output("{}", tuning_text(tuning));  // it took a minute to measure
        return written;
    }
    print_output(
        "\nTime of the choice over the best time, minus 1, at sizes between those of the file, and at "
        "the "
        "largest, measured once more:\n"
        "geometric mean over sizes, and worst, by the built-in costs (before) and by the file (after)\n{}\n{} is "
        "written: WEFT_TUNE_FILE={} makes programs "
        "use it\n",
        judgement_text(tuning, plan->arrangements, plan->work.collectives), request.file, request.file);
    return ok();
}

int run_as_rank(const TuneRequest& request) {
    auto plan = plan_of(request);
    if (!plan) return print_error("weft tune: {}\n", plan.status().text()), 2;
    plan->work.seconds = request.seconds;
    return run_tune_rank(plan->work);
}

}  // namespace

void add_tune_command(CLI::App& app, int& exit_status) {
    auto request = std::make_shared<TuneRequest>();
    CLI::App* command = app.add_subcommand(
        "tune",
        "Measures this machine and writes a file, from which WEFT_TUNE_FILE lets programs choose their algorithms");
    command->add_option("-o,--output", request->file, "File to write")->capture_default_str();
    command->add_option("--seconds", request->seconds, "The approximate duration")
        ->capture_default_str()
        ->check(CLI::Range(0.01, 1e6));
    command->add_option("--ranks", request->ranks, "Numbers of ranks")->capture_default_str();
    command
        ->add_option("--transports", request->transports,
                     "shm: ranks share memory; tcp: each is a host of its own, over the loopback interface")
        ->capture_default_str();
    command->add_option("--collectives", request->collectives, "As in WEFT_ALGO (all)");
    command->add_option("--least", request->least, "Smallest size, of the whole")->capture_default_str();
    command->add_option("--most", request->most, "Largest size")->capture_default_str();
    command->add_flag("--as-rank", request->is_rank)->group("");
    command->callback([=, &exit_status] {
        if (request->is_rank) {
            exit_status = run_as_rank(*request);
            return;
        }
        const Status tuned = run_tune(*request);
        if (!tuned) print_error("weft tune: {}\n", tuned.text());
        exit_status = tuned ? 0 : tuned.code() == weftInvalidArgument ? 2 : 1;
    });
}

}  // namespace weft::internal::tools
