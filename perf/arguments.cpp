// arguments.cpp: parses the command line with CLI11; each impossible combination of flags has a sentence.
#include "arguments.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdlib>
#include <filesystem>

namespace perf {
namespace {

// The message for a combination of flags that cannot be run.
struct Objection {
    std::string text;
};

// "64K" is 65536.
size_t parse_size(const std::string& flag, const std::string& text) {
    char* end = nullptr;
    const double number = std::strtod(text.c_str(), &end);
    const std::string unit(end);
    const size_t place = std::string("kmg").find(char(std::tolower(unit.empty() ? 0 : unit[0])));
    const bool known_unit = unit.empty() || (unit.size() == 1 && place != std::string::npos);
    const double bytes = unit.empty() ? number : number * std::exp2(10.0 * double(place + 1));
    if (text.empty() || end == text.c_str() || !known_unit || !(bytes >= 0 && bytes < 0x1p62))
        throw Objection{
            fmt::format("{} {} is no size: give bytes, with K, M or G behind them for powers of 1024", flag, text)};
    return size_t(bytes);
}

// Splits a list at commas and blanks.
std::vector<std::string> words_of(const std::string& list) {
    std::vector<std::string> words(1);
    for (char c : list)
        if (c == ',' || c == ' ')
            words.emplace_back();
        else
            words.back() += c;
    std::erase(words, "");
    return words;
}

template <typename Row>
std::string names_of(const std::vector<Row>& rows) {
    std::string names;
    for (const Row& row : rows) names += std::string(row.name) + ", ";
    return names + "all";
}

template <typename Row>
std::vector<const Row*> choose(const std::string& flag, const std::string& name, const std::vector<Row>& rows,
                               const Row* (*find)(const std::string&)) {
    std::vector<const Row*> chosen;
    if (name == "all")
        for (const Row& row : rows) chosen.push_back(&row);
    else if (const Row* row = find(name))
        chosen.push_back(row);
    else
        throw Objection{fmt::format("{} {} does not exist: there are {}", flag, name, names_of(rows))};
    return chosen;
}

// More would take days, and the list of them gigabytes.
constexpr size_t sizes_most = 1'000'000;

// The sizes from -b to -e, as nccl-tests steps through them.
std::vector<size_t> walk(const Arguments& arguments) {
    const size_t least = arguments.min_bytes, most = arguments.max_bytes, factor = size_t(arguments.step_factor);
    if (least > most) throw Objection{fmt::format("-b {} is above -e {}", least, most)};
    if (least < most && factor <= 1 && arguments.step_bytes == 0)
        throw Objection{"-i 0 never gets from -b to -e: give a step, or a factor with -f"};
    if (least < most && factor > 1 && least == 0)
        throw Objection{"-f multiplies, so it never leaves -b 0: start at one element, for instance -b 4"};
    if (factor <= 1 && least < most && (most - least) / arguments.step_bytes >= sizes_most)
        throw Objection{
            fmt::format("-b {} -e {} -i {} makes {} sizes, more than {}: give a larger step, or a factor "
                        "with -f",
                        least, most, arguments.step_bytes, (most - least) / arguments.step_bytes + 1, sizes_most)};
    std::vector<size_t> sizes;
    for (size_t bytes = least;; bytes = factor > 1 ? bytes * factor : bytes + arguments.step_bytes) {
        sizes.push_back(bytes);
        if (factor > 1 ? bytes > most / factor : most - bytes < arguments.step_bytes || most == bytes) return sizes;
    }
}

// Flags of nccl-tests that concern GPUs and have no effect here.
struct GpuFlag {
    const char* flags;
    int only;  // the only value that asks for no change
    const char* reason;
};
constexpr GpuFlag gpu_flags[] = {
    {"-C,--report_cputime", 0, "on host memory it is the time already shown; on a GPU's it is not measured yet"},
    {"-x,--cta_policy", 0, "Weft chooses the blocks of its kernels by itself"},
    {"-D,--device_implementation", 0, "Weft has no collectives that kernels call"},
    {"-V,--device_cta_count", 16, "Weft has no collectives that kernels call"},
};

}  // namespace

std::variant<Arguments, Refusal> parse_arguments(const std::string& program, int argc, const char* const* argv) {
    Arguments a;
    a.command_line.assign(argv, argv + argc);
    std::string min_bytes, max_bytes, step_bytes, sizes, element = "float", reduction = "sum", statistic = "mean", show;
    int parallel_init = 0, timestamps = 0, average = 1, registered = 0, memory_report = 0, per_iteration = 0,
        stream_null = 0;
    int gpu_values[std::size(gpu_flags)];

    CLI::App app("Measures and checks a collective on this job's ranks, in the manner of nccl-tests.", program);
    app.set_help_flag("-h,--help", "Print this and exit");
    const CLI::Range yes_no(0, 1), count(1, 1 << 30), count_or_zero(0, 1 << 30);
    const std::string sizes_group = "Sizes", run_group = "What is run", report_group = "Report", gpu_group = "GPUs",
                      refused_group = "Known, but refused";
    app.add_option("-b,--minbytes", min_bytes, "Smallest size in bytes; K, M, G are powers of 1024 (32M)")
        ->group(sizes_group);
    app.add_option("-e,--maxbytes", max_bytes, "Largest size (32M)")->group(sizes_group);
    app.add_option("-i,--stepbytes", step_bytes, "Step from size to size (1M)")->group(sizes_group);
    app.add_option("-f,--stepfactor", a.step_factor, "Factor from size to size, instead of a step")
        ->check(count)
        ->group(sizes_group);
    app.add_option("--sizes", sizes, "These sizes, as in 8,64K,1M, instead of -b and -e")->group(sizes_group);

    app.add_option("-t,--nthreads", a.threads,
                   "Ranks, as threads of this process (1); a launcher's processes are ranks without it")
        ->check(CLI::Range(1, 4096))
        ->group(run_group);
    app.add_option("-o,--op", reduction, "Reduction: " + names_of(reductions()) + " (sum)")->group(run_group);
    app.add_option("-d,--datatype", element, "Data type: " + names_of(elements()) + " (float)")->group(run_group);
    app.add_option("-r,--root", a.root, "Root rank, for collectives that have one (0); -1: each rank in turn")
        ->check(CLI::Range(-1, 1 << 30))
        ->group(run_group);
    app.add_option("-n,--iters", a.iterations, "Iterations timed (20)")->check(count)->group(run_group);
    app.add_option("-m,--agg_iters", a.calls_per_group, "Calls in an iteration, in one group (1)")
        ->check(count)
        ->group(run_group);
    app.add_option("-w,--warmup_iters", a.warmups, "Iterations before each timing (1)")
        ->check(count_or_zero)
        ->group(run_group);
    app.add_option("-N,--run_cycles", a.cycles, "Walks through all sizes (1); 0: for ever")
        ->check(count_or_zero)
        ->group(run_group);
    app.add_option("-c,--check", a.checks,
                   "Times that a result is checked, outside the timing, each with other data (1)")
        ->check(count_or_zero)
        ->group(run_group);
    app.add_option("-p,--parallel_init", parallel_init,
                   "1: threads join the communicator each by itself, 0: in one group")
        ->check(yes_no)
        ->group(run_group);
    app.add_option("-z,--blocking", a.blocking,
                   "1: barrier after each call, 3: after each iteration, not timed; 0 and 2 are alike, for calls block")
        ->check(CLI::Range(0, 3))
        ->group(run_group);
    app.add_option("-g,--ngpus", a.gpus, "GPUs of each -t, whose memory the buffers are in; 0: host memory (0)")
        ->check(CLI::Range(0, 1024))
        ->group(gpu_group);
    app.add_option("--ranks-per-gpu", a.ranks_per_gpu,
                   "Ranks that share a GPU, each a thread, or a launcher's process (1)")
        ->check(CLI::Range(1, 64))
        ->group(gpu_group);
    app.add_option("-G,--cudagraph", a.graph_launches,
                   "Above 0: the iterations are captured as a CUDA graph, which is launched so often (0)")
        ->check(count_or_zero)
        ->group(gpu_group);
    app.add_option("-y,--stream_null", stream_null,
                   "1: on a GPU, calls get the legacy stream, NULL; on the host they always do")
        ->check(yes_no)
        ->group(gpu_group);
    app.add_option("-T,--timeout", a.timeout_s,
                   "Seconds without progress after which a collective fails (Weft's default)")
        ->check(count_or_zero)
        ->group(run_group);
    app.add_option("-R,--local_register", registered,
                   "1: buffers of weftHostAlloc, on GPUs of weftMemAlloc, registered; 2: on GPUs, of weftMemAlloc, as "
                   "symmetric windows; 0: private, of malloc, of cuMemAlloc (0)")
        ->group(run_group);
    app.add_flag("--plain-memory", a.plain_memory, "With -R 1: buffers of cuMemAlloc, registered")->group(gpu_group);
    app.add_option("-u,--unalign", a.unalign_elements, "Buffers start this many elements later (0)")
        ->check(count_or_zero)
        ->group(run_group);

    app.add_option("-a,--average", average, "Time shown: 0 rank 0's, 1 mean, 2 least, 3 most over ranks (1)")
        ->check(CLI::Range(0, 3))
        ->group(report_group);
    app.add_option("--stat", statistic,
                   "mean: nccl-tests' time; median-max: the slowest rank's per batch, median over batches (mean)")
        ->check(CLI::IsMember({"mean", "median-max"}))
        ->group(report_group);
    app.add_option("--seconds", a.seconds, "Seconds measured a size by median-max (0.3)")
        ->check([](const std::string& text) {  // CLI::Range accepts text that is not a number
            double value = 0;
            return CLI::detail::lexical_cast(text, value) && value >= 1e-6 && value <= 1e6
                       ? std::string()
                       : fmt::format("{} is no number of seconds from 1e-6 to 1e6", text);
        })
        ->group(report_group);
    app.add_option("--json-lines", a.json_lines_peer,
                   "Print perf/peers' lines under this name instead of the table; implies --stat median-max")
        ->group(report_group);
    app.add_option("--show", show, "algo: columns for the algorithm and transport chosen")
        ->check(CLI::IsMember({"algo"}))
        ->group(report_group);
    app.add_flag("--regret", a.regret,
                 "Every algorithm that can serve, in turns, for --seconds a size: what was chosen against the best, "
                 "out of place")
        ->group(report_group);
    app.add_option("-I,--per_iter_timing", per_iteration,
                   "1: least, most, p99 and variation over iterations, the slowest rank's")
        ->check(yes_no)
        ->group(report_group);
    app.add_option("-K,--per_iter_skip", a.skipped_iterations, "First iterations that -I leaves out (0)")
        ->check(count_or_zero)
        ->group(report_group);
    app.add_option("-S,--report_timestamps", timestamps, "1: date and time at the end of each line")
        ->check(yes_no)
        ->group(report_group);
    app.add_option("-M,--memory", memory_report, "1: memory that Weft holds, at the end")
        ->check(yes_no)
        ->group(report_group);
    app.add_option("-J,--output_file", a.json_file,
                   "Also write the results as JSON; an existing file is kept, a number is appended")
        ->group(report_group);
    for (size_t i = 0; i < std::size(gpu_flags); ++i) {
        gpu_values[i] = gpu_flags[i].only;
        app.add_option(gpu_flags[i].flags, gpu_values[i], gpu_flags[i].reason)->group(refused_group);
    }

    try {
        app.parse(argc, argv);
        for (size_t i = 0; i < std::size(gpu_flags); ++i)
            if (gpu_values[i] != gpu_flags[i].only)
                throw Objection{fmt::format("{} {}: {}", gpu_flags[i].flags, gpu_values[i], gpu_flags[i].reason)};
        std::error_code unseen;
        const auto kind = std::filesystem::status(a.json_file, unseen).type();
        if (!a.json_file.empty() && kind != std::filesystem::file_type::regular &&
            kind != std::filesystem::file_type::not_found)
            throw Objection{
                fmt::format("-J {} is no file, but a folder or device: name one that can be made", a.json_file)};
        if (registered < 0 || registered > 2)
            throw Objection{fmt::format("-R {} means nothing: give 0, 1 or 2", registered)};
        if (registered == 2 && a.gpus == 0)
            throw Objection{"-R 2 makes windows of GPU memory: give -g 1 as well, or -R 1 for host memory"};
        if (a.gpus == 0 && (a.ranks_per_gpu > 1 || a.graph_launches > 0 || a.plain_memory))
            throw Objection{"--ranks-per-gpu, -G and --plain-memory speak of GPUs: give -g 1 as well"};
        if (a.plain_memory && registered != 1) throw Objection{"--plain-memory says what -R 1 registers: give both"};
        const bool median_max = statistic == "median-max" || !a.json_lines_peer.empty();
        a.statistic = median_max ? Statistic::median_max : Statistic::mean;
        if (a.graph_launches > 0 && (per_iteration != 0 || a.blocking % 2 == 1 || median_max))
            throw Objection{"-G times whole graphs: leave out -I, -z, --stat median-max and --json-lines"};
        if (a.graph_launches > 0 && stream_null != 0)
            throw Objection{"-G captures a stream, and the legacy stream cannot be captured: leave out -y"};
        if (a.blocking == 1 && a.calls_per_group > 1)
            throw Objection{"-z 1 waits after every call, but calls in a group (-m) begin only when it ends: use -z 3"};
        if (a.skipped_iterations >= a.iterations)
            throw Objection{fmt::format("-K {} leaves none of -n {} iterations", a.skipped_iterations, a.iterations)};
        if (a.skipped_iterations > 0 && per_iteration == 0)
            throw Objection{"-K leaves iterations out of -I's figures: give -I 1 as well"};
        if (per_iteration != 0 && median_max) throw Objection{"-I shows the iterations of --stat mean"};
        // The flags of the loop of --stat mean alone.
        const bool of_mean = a.blocking % 2 == 1 || app.count("-n") + app.count("-w") + app.count("-a") > 0;
        if (of_mean && median_max)
            throw Objection{
                "--stat median-max, which --json-lines implies, has a way of its own to time: leave out -n, -w, -z and "
                "-a"};
        if (a.regret && a.gpus > 0)
            throw Objection{"--regret asks for an algorithm call by call, which is for host memory: leave out -g"};
        if (a.regret && (per_iteration != 0 || of_mean || a.calls_per_group > 1 || median_max))
            throw Objection{
                "--regret has a way of its own to time: leave out -n, -w, -z, -a, -I, -m, --stat and --json-lines"};
        if (!min_bytes.empty()) a.min_bytes = parse_size("-b", min_bytes);
        if (!max_bytes.empty()) a.max_bytes = parse_size("-e", max_bytes);
        if (!step_bytes.empty()) a.step_bytes = parse_size("-i", step_bytes);
        a.elements = choose("-d", element, elements(), find_element);
        a.reductions = choose("-o", reduction, reductions(), find_reduction);
        const auto meets = [&](const Reduction* o) {
            return std::any_of(a.elements.begin(), a.elements.end(), [&](const Element* d) { return serves(*o, *d); });
        };
        if (std::none_of(a.reductions.begin(), a.reductions.end(), meets))
            throw Objection{fmt::format("-o {} combines the bits of integers, and -d {} is none: give -d int32, say",
                                        reduction, element)};
        if (!a.json_lines_peer.empty() && (a.elements.size() > 1 || a.reductions.size() > 1))
            throw Objection{"--json-lines has no column for type or reduction: give one of each"};
        if (sizes.empty()) a.sizes = walk(a);
        for (const std::string& size : words_of(sizes)) a.sizes.push_back(parse_size("--sizes", size));
        if (a.sizes.empty()) throw Objection{"--sizes holds no size"};
        if (!sizes.empty()) {
            const auto [least, most] = std::minmax_element(a.sizes.begin(), a.sizes.end());
            a.min_bytes = *least;
            a.max_bytes = *most;
        }
    } catch (const CLI::CallForHelp&) {
        return Refusal{0, app.help()};
    } catch (const CLI::ParseError& error) {
        return Refusal{2, fmt::format("{}: {} (-h lists the flags)\n", program, error.what())};
    } catch (const Objection& objection) {
        return Refusal{2, fmt::format("{}: {}\n", program, objection.text)};
    }
    a.parallel_init = parallel_init != 0;
    a.null_stream = stream_null != 0;
    a.timestamps = timestamps != 0;
    a.average = Average(average);
    a.registered = Registered(registered);
    a.memory_report = memory_report != 0;
    a.per_iteration = per_iteration != 0;
    a.show_algorithm = !show.empty();
    return a;
}

}  // namespace perf
