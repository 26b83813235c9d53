#include "tools/run_command.hpp"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>
#include <weft/weft.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "src/base/options.hpp"
#include "src/base/printing.hpp"
#include "src/registry.hpp"
#include "src/rendezvous/unique_id.hpp"
#include "src/selector/algo_rules.hpp"
#include "src/selector/catalog.hpp"
#include "tools/launcher.hpp"

namespace weft::internal::tools {
namespace {

// CLI11 ends a subcommand at `--`, and the parent would then parse the program's options. This word is no option.
constexpr const char* separator = "--";
constexpr const char* shielded_separator = " --";

constexpr double seconds_most = 1e9;  // 30 years; in microseconds it fits an int64_t
constexpr int restarts_limit = 1'000'000;
constexpr int ranks_limit = 65'536;  // the default process limit of Linux on a small machine

// All ranks are on this machine. If they need a network (WEFT_HOSTID, WEFT_TRANSPORTS), the loopback interface
// suffices.
// Thus no port is open to other hosts.
void stay_on_loopback() {
    if (environment("WEFT_SOCKET_IFNAME") || environment("NCCL_SOCKET_IFNAME")) return;
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int probe = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (probe < 0) return;
    if (bind(probe, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0)
        setenv("WEFT_SOCKET_IFNAME", "=lo", 0);
    close(probe);
}

Result<std::string> make_unique_id() {
    stay_on_loopback();
    weftUniqueId id;
    if (weftGetUniqueId(&id) != weftSuccess)
        return fail(error::system_call, "no unique id: {}", weftGetLastError(nullptr));
    // With WEFT_HOSTID, the job's later communicators have several hosts too.
    if (auto made = UniqueId::read(id)) WEFT_TRY(made->meet_descendants(options().secret));
    std::string text;
    for (unsigned char byte : id.internal) text += fmt::format("{:02x}", byte);
    return text;
}

// Errors that each rank would report are reported once here. Each rank looks up names in the user's files itself.
Status check_names_of_algorithms() {
    if (!options_status() || !options().algo_files.empty()) return ok();
    return Catalog::load("", 0, registry::algorithms()).check("WEFT_ALGO", options().algo);
}

// The values of --elastic, --max-restarts, --shrink and --grow-after.
struct ElasticOptions {
    std::string range;  // MIN:MAX
    int restarts_most = 3;
    bool restarts_given = false, shrinks = false;
    double grows_after_s = -1;  // not given
};

Status read_elastic(const ElasticOptions& options, Job& job) {
    if (options.range.empty()) {
        if (options.restarts_given || options.shrinks || options.grows_after_s >= 0)
            return fail(error::command_option,
                        "--max-restarts, --shrink and --grow-after are for a job with --elastic MIN:MAX, as in "
                        "--elastic 1:4");
        if (job.ranks == 0) return fail(error::command_option, "--ranks is required, as in `weft run -n 4`");
        return ok();
    }
    Elasticity read;
    read.restarts_most = options.restarts_most;
    read.shrinks = options.shrinks;
    if (options.grows_after_s >= 0) read.grows_after_s = options.grows_after_s;
    const size_t colon = options.range.find(':');
    if (colon == std::string::npos || !CLI::detail::lexical_cast(options.range.substr(0, colon), read.least) ||
        !CLI::detail::lexical_cast(options.range.substr(colon + 1), read.most))
        return fail(error::command_option, "--elastic is {}; it must be MIN:MAX, as in 1:4", options.range);
    if (read.least < 1 || read.most < 1 || read.most > ranks_limit)
        return fail(error::command_option, "--elastic is {}; its numbers must be 1 to {}", options.range, ranks_limit);
    if (read.least > read.most)
        return fail(error::command_option, "--elastic is {}; MIN must not be above MAX", options.range);
    if (job.ranks == 0) job.ranks = read.most;
    if (job.ranks < read.least || job.ranks > read.most)
        return fail(error::command_option, "-n is {}; --elastic {} allows {} to {} ranks", job.ranks, options.range,
                    read.least, read.most);
    if (!job.end_others)
        return fail(error::command_option,
                    "--elastic and --no-kill exclude each other: a restart needs the end of all ranks");
    job.elasticity = read;
    return ok();
}

Result<int> run(Job& job, const ElasticOptions& elastic, std::vector<std::string> command) {
    for (std::string& word : command) {
        if (word == shielded_separator) word = separator;
    }
    if (!command.empty() && command[0] == separator)
        command.erase(command.begin());
    else if (!command.empty() && command[0][0] == '-') {
        return fail(error::command_option, "{} is not an option of weft run (`weft run --help` lists them)",
                    command[0]);
    }
    if (command.empty())
        return fail(error::command_option,
                    "the program is missing; an example is `weft run -n 4 ./program its arguments`");
    job.command = std::move(command);
    WEFT_TRY(read_elastic(elastic, job));
    WEFT_TRY(check_names_of_algorithms());
    Result<std::string> id = make_unique_id();
    if (!id) return id.take_status();
    job.unique_id = std::move(*id);
    job.make_unique_id = make_unique_id;
    return launch(job);
}

}  // namespace

void shield_separator(std::vector<std::string>& arguments) {
    for (std::string& word : arguments) {
        if (word == separator) word = shielded_separator;
    }
}

void add_run_command(CLI::App& app, int& exit_status) {
    auto job = std::make_shared<Job>();
    auto elastic = std::make_shared<ElasticOptions>();
    auto no_kill = std::make_shared<bool>(false);
    auto bind = std::make_shared<std::string>("core");
    // CLI::Range accepts text that is not a number.
    const auto seconds = [](const std::string& text) {
        double value = 0;
        return CLI::detail::lexical_cast(text, value) && value >= 0 && value <= seconds_most
                   ? std::string()
                   : fmt::format("{} is not a number of seconds from 0 to {}", text, seconds_most);
    };
    CLI::App* command = app.add_subcommand(
        "run", "Starts a program as the N ranks of a job on this machine: weft run -n 4 ./program its arguments");
    command->prefix_command();
    command->footer(
        "The ranks find their place in WEFT_RANK, WEFT_SIZE and WEFT_UNIQUE_ID; weftCommInitFromEnvironment reads "
        "them. Rank\n"
        "0 has the launcher's standard input. The status is that of the first rank that failed, 128 + signal if one "
        "ended\n"
        "it; 124 after --timeout; 127 if the program is not found. What the ranks leave running is ended with the "
        "job,\n"
        "unless weft run itself is killed with SIGKILL: the processes that ranks have started then live on.\n"
        "With --elastic the ranks also find WEFT_RESTART_COUNT and WEFT_MAX_RESTARTS. The status is that of the last "
        "start.");
    command->add_option("-n,--ranks", job->ranks, "Ranks to start")->check(CLI::Range(1, ranks_limit));
    command->add_option("--elastic", elastic->range,
                        "MIN:MAX, ranks; after a failure all ranks are started again; -n is MAX if it is missing");
    command->add_option("--max-restarts", elastic->restarts_most, "--elastic: restarts at most")
        ->check(CLI::Range(0, restarts_limit))
        ->capture_default_str();
    command->add_flag("--shrink", elastic->shrinks, "--elastic: no replacement for lost ranks, down to MIN");
    command
        ->add_option("--grow-after", elastic->grows_after_s,
                     "--elastic: a restart at least so many seconds after the last one counts from MAX ranks again")
        ->check(seconds);
    command
        ->add_option("--bind", *bind, "core: rank r to the r-th core allowed, in turns if there are more ranks; none")
        ->check(CLI::IsMember({"core", "none"}))
        ->capture_default_str();
    command->add_flag("--label", job->label, "Put [rank] before each line of output");
    command->add_flag("--no-kill", *no_kill, "Leave the other ranks alone when one fails");
    command->add_option("--timeout", job->time_limit_s, "End the job after so many seconds; 0 is never")
        ->check(seconds);
    // For tests, which cannot wait five seconds; hidden from the help.
    command->add_option("--grace", job->grace_s)->check(seconds)->group("");
    command->callback([=, &exit_status] {
        job->end_others = !*no_kill;
        job->bind_cores = *bind == "core";
        elastic->restarts_given = command->count("--max-restarts") > 0;
        Result<int> status = run(*job, *elastic, command->remaining());
        if (!status) print_error("weft run: {}\n", status.status().text());
        exit_status = status ? *status : status.status().code() == weftInvalidArgument ? 2 : 1;
    });
}

}  // namespace weft::internal::tools
