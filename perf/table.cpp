// table.cpp: the text in nccl-tests' columns.
#include "table.hpp"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <cstdio>
#include <ctime>
#include <fstream>
#include <sstream>

#include "src/base/printing.hpp"

namespace perf {
namespace {

// Six or seven characters for a number of any size.
std::string number(double value, size_t width) {
    for (int digits = 2; digits >= 0; --digits)
        if (std::string text = fmt::format("{:{}.{}f}", value, width, digits); text.size() <= width) return text;
    return fmt::format("{:{}.{}e}", value, width, width >= 7 ? 1 : 0);
}

// Empty columns for a collective without this placement.
std::string no_result_text(const Arguments& arguments) {
    std::string text = fmt::format("  {0:>7}  {0:>6}  {0:>6}  {0:>6}", "N/A");
    for (int i = 0; arguments.per_iteration && i < 4; ++i) text += fmt::format("  {:>7}", "N/A");
    return text;
}

std::string result_text(const Arguments& arguments, const Result& result) {
    std::string text =
        fmt::format("  {}  {}  {}  {:>6}", number(result.measurement.time_us, 7), number(result.algorithm_bandwidth, 6),
                    number(result.bus_bandwidth, 6), result.wrong ? std::to_string(*result.wrong) : "N/A");
    if (arguments.per_iteration) {
        const auto& times = result.measurement.iterations_us;
        const Spread spread = spread_of({times.begin() + arguments.skipped_iterations, times.end()});
        for (double value : {spread.least, spread.most, spread.p99, spread.variation_percent})
            text += fmt::format("  {}", number(value, 7));
    }
    return text;
}

// The CPUs on which this thread may run, as "0-3,8".
std::string allowed_cpus() {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0) return "?";
    std::string text;
    for (int first = 0; first < CPU_SETSIZE; ++first) {
        if (!CPU_ISSET(first, &set)) continue;
        int last = first;
        while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, &set)) ++last;
        if (!text.empty()) text += ',';
        text += last > first ? fmt::format("{}-{}", first, last) : std::to_string(first);
        first = last;
    }
    return text;
}

std::string processor_model() {
    std::ifstream file("/proc/cpuinfo");
    for (std::string line; std::getline(file, line);)
        if (line.starts_with("model name")) return line.substr(std::min(line.size(), line.find(':') + 2));
    return "processor";
}

std::string size_text(uint64_t bytes) {
    if (bytes < 1024) return fmt::format("{} B", bytes);
    if (bytes < 1024 * 1024) return fmt::format("{:.1f} KiB", double(bytes) / 1024);
    return fmt::format("{:.1f} MiB", double(bytes) / (1024 * 1024));
}

}  // namespace

RankPlace this_place(const Gpu* gpu) {
    char host[64] = {};
    gethostname(host, sizeof host - 1);
    return {getpid(), host, gpu ? gpu->device() : -1, allowed_cpus(), gpu ? gpu->name() : processor_model()};
}

std::string text_of(const RankPlace& place) {
    return fmt::format("{} {} {} {} {}", place.pid, place.host, place.device, place.cpus, place.model);
}

RankPlace place_from(const std::string& text) {
    RankPlace place;
    std::istringstream words(text);
    words >> place.pid >> place.host >> place.device >> place.cpus;
    std::getline(words >> std::ws, place.model);
    return place;
}

std::string timestamp() {
    char text[64];
    const std::time_t now = std::time(nullptr);
    std::tm local;
    localtime_r(&now, &local);
    std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &local);
    return text;
}

std::string preamble_text(const Collective& collective, const Arguments& a, const std::vector<RankPlace>& places) {
    int version = 0;
    (void)weftGetVersion(&version);
    std::string text = fmt::format("# {} headers={} library={}\n# Collective test starting: {}\n", collective.served_by,
                                   WEFT_VERSION_CODE, version, collective.program);
    text += fmt::format(
        "# nThread {} nGpus {} minBytes {} maxBytes {} step: {}({}) warmup iters: {} iters: {} agg iters: {} "
        "validation: {} graph: {} unalign: {}\n",
        a.threads, a.gpus, a.min_bytes, a.max_bytes, a.step_factor > 1 ? size_t(a.step_factor) : a.step_bytes,
        a.step_factor > 1 ? "factor" : "bytes", a.warmups, a.iterations, a.calls_per_group, a.checks, a.graph_launches,
        a.unalign_elements);
    if (a.statistic == Statistic::median_max)
        text += fmt::format(
            "# Time: batches of calls after a barrier, the slowest rank's, median over batches in {} s a size\n",
            a.seconds);
    if (a.regret)
        text += fmt::format(
            "# Regret: every candidate in turns for {} s a size; time: batches of calls after a barrier, the slowest "
            "rank's, lower decile\n",
            a.seconds);
    if (a.blocking == 1) text += "# Blocking Enabled: barrier after each call, timed\n";
    if (a.blocking == 3) text += "# Blocking Enabled: barrier after each iteration, not timed\n";
    if (a.per_iteration) text += "# Per-Iteration Report: i_* are the slowest rank's times of iterations\n";
    if (a.parallel_init) text += "# Parallel Init Enabled: threads join the communicator each by itself\n";
    if (a.registered != Registered::no)
        text += fmt::format("# Buffers: {}, {}\n",
                            a.plain_memory ? std::string("cuMemAlloc")
                            : a.gpus > 0   ? std::string(collective.served_by) + "'s device memory"
                                           : std::string("weftHostAlloc"),
                            a.registered == Registered::windows ? "in symmetric windows" : "registered");
    text += "#\n# Using devices\n";
    for (size_t rank = 0; rank < places.size(); ++rank)
        text += fmt::format("#  Rank {:2} Group  0 Pid {:6} on {:>10} {} {:>2} {}\n", rank, places[rank].pid,
                            places[rank].host, places[rank].device < 0 ? "cpu" : "device",
                            places[rank].device < 0 ? places[rank].cpus : std::to_string(places[rank].device),
                            places[rank].model);
    return text;
}

std::string header_text(const Collective& collective, const Arguments& a, const std::vector<RankPlace>& places) {
    std::string text = preamble_text(collective, a, places);
    const std::string iteration_names = a.per_iteration ? "    i_min    i_max    i_p99    i_cv%" : "";
    const std::string iteration_units = a.per_iteration ? "     (us)     (us)     (us)      (%)" : "";
    auto line = [&](const char* first, const char* second, const char* third, const char* fourth, const char* fifth,
                    const std::string& columns, const char* algorithm, const char* transport, const char* stamp) {
        text += fmt::format("# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}{}", first, second, third, fourth, fifth, columns);
        if (a.show_algorithm) text += fmt::format("  {:>15}  {:>9}", algorithm, transport);
        if (a.timestamps) text += fmt::format("  {:>19}", stamp);
        text += "\n";
    };
    const size_t width = 31 + iteration_names.size();
    const std::string names = "     time   algbw   busbw  #wrong" + iteration_names;
    const std::string units = "     (us)  (GB/s)  (GB/s)        " + iteration_units;
    text += "#\n";
    line("", "", "", "", "", fmt::format("  {:^{}}  {:^{}}", "out-of-place", width, "in-place", width), "", "", "");
    line("size", "count", "type", "redop", "root", names + names, "algorithm", "transport", "timestamp");
    line("(B)", "(elements)", "", "", "", units + units, "", "", "");
    return text;
}

std::string row_text(const Arguments& arguments, const Row& row) {
    std::string text = fmt::format("{:12}  {:12}  {:>8}  {:>6}  {:6}", row.bytes, row.count, row.element->name,
                                   row.reduction->name, row.root);
    text += result_text(arguments, row.out_of_place);
    text += row.in_place ? result_text(arguments, *row.in_place) : no_result_text(arguments);
    if (arguments.show_algorithm) text += fmt::format("  {:>15}  {:>9}", row.algorithm, row.transport);
    if (arguments.timestamps) text += fmt::format("  {}", timestamp());
    return text + "\n";
}

std::string footer_text(const Collective& collective, int64_t wrong, std::optional<double> average_bus_bandwidth,
                        const std::optional<Memory>& memory) {
    std::string text = fmt::format("# {:<20} : {} {}\n", "Out of bounds values", wrong, wrong ? "FAILED" : "OK");
    if (average_bus_bandwidth) text += fmt::format("# {:<20} : {:g} \n", "Avg bus bandwidth", *average_bus_bandwidth);
    if (memory)
        text += fmt::format("# {:<20} : board {} | connection {} | heap {} | total {} (the rank that holds most)\n",
                            "Memory held by Weft", size_text(memory->board), size_text(memory->connection),
                            size_text(memory->heap), size_text(memory->total));
    return text + fmt::format("#\n# Collective test concluded: {}\n\n", collective.program);
}

Progress::Progress(bool wanted) : on_(wanted && isatty(STDERR_FILENO)) {}

void Progress::show(const std::string& text) {
    if (!on_) return;
    wipe();
    weft::internal::print_error_text(text);
    shown_ = text.size();
}

void Progress::wipe() {
    if (shown_ > 0) weft::internal::print_error("\r{:{}}\r", "", shown_);
    shown_ = 0;
}

}  // namespace perf
