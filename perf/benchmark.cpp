// benchmark.cpp: the run of one rank.
// For every type, reduction and size, the rank times and checks the call, out of place and in place, and rank 0
// reports.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>

#include "buffers.hpp"
#include "collective.hpp"
#include "job.hpp"
#include "json_report.hpp"
#include "memory.hpp"
#include "placement.hpp"
#include "race.hpp"
#include "regret.hpp"
#include "result_check.hpp"
#include "src/base/json_text.hpp"
#include "src/base/printing.hpp"
#include "table.hpp"
#include "timing.hpp"

namespace perf {
namespace {

std::string version_text(const char* library) {
    int version = 0;
    (void)weftGetVersion(&version);
    return fmt::format("{} {}.{}.{}", library, version / 10000, version / 100 % 100, version % 100);
}

// The place where results are checked, from rank 0's GPU. Other ranks' GPUs may be checked elsewhere, with no effect on
// results.
std::string checking_text(const Gpu& gpu) {
    if (gpu.no_kernels().empty()) return "# Results are checked on the GPUs\n";
    return fmt::format("# Results are copied to the host to be checked: {}\n", gpu.no_kernels());
}

// Owns the handle of a reduction that must be created. Thread-bound to the rank's thread.
class ReductionHandle {
  public:
    ReductionHandle(Rank& rank, const Element& element, const Reduction& reduction) : rank_(rank), op_(reduction.op) {
        if (op_ != weftNumOps) return;
        uint64_t scalar = Pattern(element, reduction, rank.count(), 0).scalar(rank.index());
        rank.expect(weftRedOpCreatePreMulSum(&op_, &scalar, element.type, weftScalarHostImmediate, rank.comm()),
                    "weftRedOpCreatePreMulSum");
        made_ = true;
    }
    ~ReductionHandle() {
        if (made_) (void)weftRedOpDestroy(op_, rank_.comm());
    }
    ReductionHandle(const ReductionHandle&) = delete;
    ReductionHandle& operator=(const ReductionHandle&) = delete;
    weftRedOp_t op() const { return op_; }

  private:
    Rank& rank_;
    weftRedOp_t op_;
    bool made_ = false;
};

// The run of one rank. Thread-bound to the rank's thread.
class Benchmark {
  public:
    Benchmark(const Collective& collective, const Arguments& arguments, Rank& rank)
        : collective_(collective),
          arguments_(arguments),
          rank_(rank),
          progress_(rank.is_first()),
          results_(collective, rank) {}

    int run();

  private:
    bool lines() const { return !arguments_.json_lines_peer.empty(); }
    void print(const std::string& text) {
        if (!rank_.is_first()) return;
        progress_.wipe();
        weft::internal::print_text(text);
        // If the output is lost, the benchmark fails at once instead of running for long without results.
        if (const weft::internal::Status output = weft::internal::output_status(); !output)
            throw Failure(output.sentence());
    }
    // False on all ranks if a host lacks memory; one rank has then printed the reason.
    bool memory_suffices(const std::vector<RankPlace>& places);
    Buffers::Layout buffer_layout(const Element& element, size_t bytes) const;
    size_t parts() const { return size_t(parts_of(collective_, rank_.count())); }
    std::vector<int> roots() const;
    // The elements of a part if the whole has at most `bytes`. bench.h's method measures at least one element.
    size_t count_of(const Element& element, size_t bytes) const {
        return std::max<size_t>(bytes / element.bytes / parts(), arguments_.statistic == Statistic::mean ? 0 : 1);
    }
    void run_cycle(const Setting& setting, const Buffers* shared);
    // The call, with its buffers filled.
    Case prepare(const Setting& setting, size_t bytes, bool in_place, const Buffers& buffers);
    Result measure(const Setting& setting, size_t bytes, bool in_place, const Buffers& buffers);
    RegretRow measure_regret(const Setting& setting, const Row& row, const Buffers& buffers);
    std::string explanation(const Row& row, weftRedOp_t op);
    void report(const Row& row);
    void name_algorithm(Row& row, weftRedOp_t op);
    Memory held_memory();

    const Collective& collective_;
    const Arguments& arguments_;
    Rank& rank_;
    Progress progress_;
    std::unique_ptr<JsonReport> json_;  // rank 0's, with -J
    ResultCheck results_;
    int64_t wrong_ = 0;  // elements, over all ranks
    std::vector<RegretRow> regrets_;
    double bus_bandwidth_sum_ = 0;
    int bus_bandwidths_ = 0;
};

Buffers::Layout Benchmark::buffer_layout(const Element& element, size_t bytes) const {
    return {std::max(bytes, parts() * element.bytes), size_t(arguments_.unalign_elements) * element.bytes,
            arguments_.registered, arguments_.plain_memory, collective_.open_window ? &collective_ : nullptr};
}

bool Benchmark::memory_suffices(const std::vector<RankPlace>& places) {
    const size_t largest = *std::max_element(arguments_.sizes.begin(), arguments_.sizes.end());
    size_t each = 0;
    for (const Element* element : arguments_.elements)
        each = std::max(each, Buffers::total_bytes(buffer_layout(*element, largest)));
    // A GPU's buffer is checked on the device, or in a copy on the host.
    if (rank_.gpu()) each = rank_.gpu()->no_kernels().empty() ? 0 : each / 2;
    std::vector<std::string> hosts;
    for (const RankPlace& place : places) hosts.push_back(place.host);
    const std::string lack = memory_lack(weft::internal::memory_headroom(), each, rank_, hosts);
    // The lowest rank that lacks memory prints the message.
    const double speaker = rank_.combine(lack.empty() ? rank_.count() : rank_.index(), weftMin);
    if (speaker == rank_.index())
        weft::internal::print_error("{}: rank {}: {}\n", collective_.program, rank_.index(), lack);
    return speaker == rank_.count();
}

std::vector<int> Benchmark::roots() const {
    std::vector<int> roots(size_t(collective_.rooted && arguments_.root < 0 ? rank_.count() : 1));
    std::iota(roots.begin(), roots.end(), collective_.rooted ? std::max(arguments_.root, 0) : 0);
    return roots;
}

Case Benchmark::prepare(const Setting& setting, size_t bytes, bool in_place, const Buffers& buffers) {
    const bool mean = arguments_.statistic == Statistic::mean;
    const Element& element = setting.element;
    const size_t count = count_of(element, bytes);
    const Placement placement = placement_of(collective_, {rank_.index(), rank_.count(), setting.root}, in_place);
    // Out of place, a rank gets the address of an unused buffer because the check looks at the buffer. In place, it is
    // null.
    const auto address = [&](const Extent& extent) -> std::byte* {
        if (extent.parts == 0 && in_place) return nullptr;
        return buffers.address(extent.side) + size_t(extent.first) * count * element.bytes;
    };
    Case measured{&collective_, {}, count * parts() * element.bytes};
    measured.call = {.send = address(placement.send),
                     .receive = address(placement.receive),
                     .count = count,
                     .type = element.type,
                     .op = setting.op,
                     .seat = {rank_.index(), rank_.count(), setting.root},
                     .comm = rank_.comm(),
                     .stream = rank_.stream(),
                     .window = buffers.window()};
    if (buffers.window()) measured.call.window_offset = buffers.window_offset(measured.call.receive);
    const size_t largest = *std::max_element(arguments_.sizes.begin(), arguments_.sizes.end());
    measured.places = mean && measured.bytes > 0 ? largest / measured.bytes : 1;

    // The timing uses real data: calls on zeros or poison can be faster or slower than calls on numbers.
    const Period input = Pattern(element, setting.reduction, rank_.count(), 0).input(rank_.index());
    for (Side side : {sending, receiving}) buffers.write(side, 0, measured.bytes * measured.places, input);
    return measured;
}

Result Benchmark::measure(const Setting& setting, size_t bytes, bool in_place, const Buffers& buffers) {
    const bool mean = arguments_.statistic == Statistic::mean;
    const Case measured = prepare(setting, bytes, in_place, buffers);
    Result result;
    result.measurement =
        mean ? measure_mean(rank_, measured, arguments_) : measure_median_max(rank_, measured, arguments_);
    Measurement& taken = result.measurement;
    taken.time_us /= collective_.messages;
    taken.least_us /= collective_.messages;
    for (double& each : taken.iterations_us) each /= collective_.messages;
    // Gigabytes a second are bytes a nanosecond.
    result.algorithm_bandwidth = double(measured.bytes) / (std::max(result.measurement.time_us, 1e-9) * 1e3);
    result.bus_bandwidth = result.algorithm_bandwidth * collective_.bus_factor(rank_.count());
    for (int i = 0; i < arguments_.checks; ++i) {
        result.wrong = result.wrong.value_or(0) + results_.check(measured, setting, in_place, buffers);
        if (*result.wrong > 0) break;
    }
    wrong_ += result.wrong.value_or(0);
    bus_bandwidth_sum_ += result.bus_bandwidth;
    ++bus_bandwidths_;
    return result;
}

RegretRow Benchmark::measure_regret(const Setting& setting, const Row& row, const Buffers& buffers) {
    const Case measured = prepare(setting, row.bytes, false, buffers);
    const std::string explained = explanation(row, setting.op);
    const Candidates candidates = candidates_of(explained);
    if (candidates.names.empty())
        throw Failure(fmt::format("no algorithm can serve {} bytes:\n{}", row.bytes, explained));
    RegretRow regret =
        regret_of(row, candidates, race(rank_, measured, candidates.names, arguments_.seconds), collective_.messages);
    for (const std::string& name : candidates.names)
        for (int i = 0; i < arguments_.checks; ++i)
            regret.wrong += results_.check(measured, setting, false, buffers, name);
    wrong_ += regret.wrong;
    return regret;
}

std::string Benchmark::explanation(const Row& row, weftRedOp_t op) {
    return perf::explanation(rank_, collective_.weft_name, row.count, row.element->type, op, std::max(row.root, 0));
}

// For device memory the explanation has a line "in device memory: <kernel>, <grid> [through host memory], <why>".
void Benchmark::name_algorithm(Row& row, weftRedOp_t op) {
    const std::string text = explanation(row, op);
    if (!rank_.gpu()) {
        const Candidates candidates = candidates_of(text);
        row.algorithm = candidates.chosen;
        row.transport = candidates.transport;
        return;
    }
    char algorithm[64] = "?";
    row.transport = "?";
    if (const size_t chosen = text.rfind("in device memory: "); chosen != std::string::npos) {
        std::sscanf(&text[chosen], "in device memory: %63[^, \n]", algorithm);
        row.transport = text.find("through host memory", chosen) == std::string::npos ? "cuda" : "host";
    }
    row.algorithm = algorithm;
}

void Benchmark::report(const Row& row) {
    if (!rank_.is_first()) return;
    if (json_) json_->add(row);
    if (!lines()) return print(row_text(arguments_, row));
    const Measurement& measurement = row.out_of_place.measurement;
    print(fmt::format(
        "{{\"peer\":{},\"version\":\"{}\",\"collective\":\"{}\",\"nranks\":{},\"bytes\":{},"
        "\"median_us\":{:.3f},\"min_us\":{:.3f},\"iters\":{},\"ok\":{}}}\n",
        weft::internal::json_text(nlohmann::json(arguments_.json_lines_peer)), version_text(collective_.served_by),
        collective_.bench_name, rank_.count(), row.bytes, measurement.time_us, measurement.least_us, measurement.calls,
        row.out_of_place.wrong.value_or(0) == 0));
}

void Benchmark::run_cycle(const Setting& setting, const Buffers* shared) {
    const Element& element = setting.element;
    for (size_t bytes : arguments_.sizes) {
        // bench.h's method allocates new buffers for every size.
        std::unique_ptr<Buffers> fresh;
        if (!shared) fresh = std::make_unique<Buffers>(rank_, buffer_layout(element, bytes));
        const Buffers& buffers = shared ? *shared : *fresh;
        const size_t count = count_of(element, bytes);
        Row row{.bytes = lines() ? bytes : count * parts() * element.bytes,
                .count = count,
                .element = &element,
                .reduction = &setting.reduction,
                .root = collective_.rooted ? setting.root : -1,
                .out_of_place = {},
                .in_place = {},
                .algorithm = {},
                .transport = {}};
        const auto show = [&](const char* placing) {
            progress_.show(fmt::format("{} {} {}, {} bytes: {} ...", collective_.program, element.name,
                                       setting.reduction.name, bytes, placing));
        };
        if (arguments_.regret) {
            show("every candidate");
            regrets_.push_back(measure_regret(setting, row, buffers));
            if (json_) json_->add(regrets_.back());
            print(regret_text(regrets_.back()));
            continue;
        }
        show("out of place");
        row.out_of_place = measure(setting, bytes, lines() && collective_.peers_in_place, buffers);
        if (!lines() && collective_.in_place) {
            show("in place");
            row.in_place = measure(setting, bytes, true, buffers);
        }
        if (arguments_.show_algorithm) name_algorithm(row, setting.op);
        report(row);
    }
}

Memory Benchmark::held_memory() {
    double held[weftMemTotal + 1] = {};
    for (int kind = 0; kind <= weftMemTotal; ++kind) {
        uint64_t bytes = 0;
        rank_.expect(weftCommMemStats(rank_.comm(), weftMemStat_t(kind), &bytes), "weftCommMemStats");
        held[kind] = double(bytes);
    }
    rank_.combine(held, weftMax);
    return {uint64_t(held[weftMemFlagBlock]), uint64_t(held[weftMemConnection]), uint64_t(held[weftMemHeap]),
            uint64_t(held[weftMemTotal])};
}

int Benchmark::run() {
    std::vector<RankPlace> places;
    for (const std::string& text : rank_.gather(text_of(this_place(rank_.gpu())))) places.push_back(place_from(text));
    if (rank_.is_first() && !arguments_.json_file.empty())
        json_ = std::make_unique<JsonReport>(collective_.served_by, arguments_, places);
    const bool unwritable = json_ && json_->path().empty();
    if (unwritable)
        weft::internal::print_error("{}: -J {}: the file cannot be created\n", collective_.program,
                                    arguments_.json_file);
    if (rank_.combine(unwritable ? 1 : 0, weftMax) > 0) return 2;
    if (json_ && !lines()) print(fmt::format("# Writing JSON output to {}\n", json_->path()));
    if (rank_.gpu() && !lines() && arguments_.checks > 0) print(checking_text(*rank_.gpu()));
    if (arguments_.regret)
        print(preamble_text(collective_, arguments_, places) + regret_header());
    else if (!lines())
        print(header_text(collective_, arguments_, places));
    if (!memory_suffices(places)) return 1;

    const size_t largest = *std::max_element(arguments_.sizes.begin(), arguments_.sizes.end());
    for (int cycle = 0; arguments_.cycles == 0 || cycle < arguments_.cycles; ++cycle)
        for (const Element* element : arguments_.elements)
            for (const Reduction* reduction :
                 collective_.reduces ? arguments_.reductions : std::vector{&no_reduction}) {
                if (!serves(*reduction, *element)) continue;
                const ReductionHandle handle(rank_, *element, *reduction);
                std::unique_ptr<Buffers> buffers;
                if (arguments_.statistic == Statistic::mean)
                    buffers = std::make_unique<Buffers>(rank_, buffer_layout(*element, largest));
                for (int root : roots()) run_cycle({*element, *reduction, handle.op(), root}, buffers.get());
            }

    std::optional<Memory> memory;
    if (arguments_.memory_report) memory = held_memory();
    std::optional<double> average;
    if (!arguments_.regret) average = bus_bandwidths_ > 0 ? bus_bandwidth_sum_ / bus_bandwidths_ : 0;
    if (arguments_.regret) {
        if (json_) json_->finish(summarize(regrets_));
        print(regret_footer(summarize(regrets_)));
    }
    if (json_) json_->finish(wrong_, average, memory);
    const weft::internal::Status written = json_ ? json_->write() : weft::internal::ok();
    if (!lines()) print(footer_text(collective_, wrong_, average, memory));
    if (!written) weft::internal::print_error("{}: {}\n", collective_.program, written.sentence());
    return !written || wrong_ > 0 || results_.own_wrong() > 0;
}

// Reports flags that this collective ignores; nccl-tests ignores them silently.
void tell_idle_flags(const Collective& collective, const Arguments& arguments) {
    if (!collective.rooted && arguments.root != 0)
        weft::internal::print_error("{}: this collective has no root: -r {} changes nothing\n", collective.program,
                                    arguments.root);
    if (!collective.reduces && (arguments.reductions.size() > 1 || arguments.reductions[0]->op != weftSum))
        weft::internal::print_error("{}: this collective reduces nothing: -o changes nothing\n", collective.program);
}

}  // namespace

int run_benchmark(const Collective& collective, int argc, const char* const* argv) {
    const auto parsed = parse_arguments(collective.program, argc, argv);
    if (const Refusal* refusal = std::get_if<Refusal>(&parsed)) {
        refusal->status == 0 ? weft::internal::print_text(refusal->text)
                             : weft::internal::print_error_text(refusal->text);
        return weft::internal::status_after_output(collective.program, refusal->status);
    }
    const Arguments& arguments = std::get<Arguments>(parsed);
    if ((arguments.show_algorithm || arguments.regret) && !collective.weft_name) {
        weft::internal::print_error("{}: {}: no algorithm is chosen here: messages go from rank to rank\n",
                                    collective.program, arguments.regret ? "--regret" : "--show algo");
        return 2;
    }
    if (collective.rooted && arguments.root < 0 && !arguments.json_lines_peer.empty()) {
        weft::internal::print_error("{}: --json-lines has no column for the root: give one with -r\n",
                                    collective.program);
        return 2;
    }
    const int status = run_ranks(collective.program, arguments, [&](Rank& rank) {
        try {
            if (rank.is_first()) tell_idle_flags(collective, arguments);
            if (collective.rooted && arguments.root >= rank.count()) {
                if (rank.is_first())
                    weft::internal::print_error("{}: -r {}: there are {} ranks\n", collective.program, arguments.root,
                                                rank.count());
                return 2;
            }
            if (!takes_part(collective, {0, rank.count()})) {
                weft::internal::print_error("{}: one rank has no partner: start two or more\n", collective.program);
                return 2;
            }
            return Benchmark(collective, arguments, rank).run();
        } catch (const Buffers::Shortage& shortage) {
            if (!shortage.sentence.empty())
                weft::internal::print_error("{}: {}\n", collective.program, shortage.sentence);
            return 1;
        }
    });
    return weft::internal::status_after_output(collective.program, status);
}

}  // namespace perf
