#include "tools/tune_ranks.hpp"

#include <fmt/format.h>
#include <weft/weft.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <map>
#include <sstream>
#include <utility>

#include "perf/race.hpp"
#include "src/base/cpu.hpp"
#include "src/base/printing.hpp"
#include "topology/detect/discover.hpp"
#include "topology/model/cpu_mask.hpp"

namespace weft::internal::tools {
namespace {

struct Call {
    Collective collective;
    weftResult_t (*run)(const perf::Call& call);
};

const Call calls[] = {
    {Collective::all_reduce,
     [](const perf::Call& c) { return weftAllReduce(c.send, c.receive, c.count, c.type, c.op, c.comm, nullptr); }},
    {Collective::broadcast,
     [](const perf::Call& c) {
         return weftBroadcast(c.send, c.receive, c.count, c.type, c.seat.root, c.comm, nullptr);
     }},
    {Collective::reduce,
     [](const perf::Call& c) {
         return weftReduce(c.send, c.receive, c.count, c.type, c.op, c.seat.root, c.comm, nullptr);
     }},
    {Collective::all_gather,
     [](const perf::Call& c) { return weftAllGather(c.send, c.receive, c.count, c.type, c.comm, nullptr); }},
    {Collective::reduce_scatter,
     [](const perf::Call& c) { return weftReduceScatter(c.send, c.receive, c.count, c.type, c.op, c.comm, nullptr); }},
    {Collective::all_to_all,
     [](const perf::Call& c) { return weftAlltoAll(c.send, c.receive, c.count, c.type, c.comm, nullptr); }},
    {Collective::gather,
     [](const perf::Call& c) { return weftGather(c.send, c.receive, c.count, c.type, c.seat.root, c.comm, nullptr); }},
    {Collective::scatter,
     [](const perf::Call& c) { return weftScatter(c.send, c.receive, c.count, c.type, c.seat.root, c.comm, nullptr); }},
    {Collective::barrier, [](const perf::Call& c) { return weftBarrier(c.comm, nullptr); }},
};

}  // namespace

// The held-out sizes are halfway between the others.
std::vector<TunedSize> tuned_sizes(const TuneWork& work) {
    std::vector<TunedSize> sizes;
    int gap = 0;
    for (size_t bytes = 8; bytes <= size_t(1) << 40; bytes = next_tuned_size(bytes)) {
        const size_t between = 2 * bytes;
        if (bytes >= work.least_bytes && bytes <= work.most_bytes) sizes.push_back({bytes, false});
        // Every other gap only, because held-out sizes cost as much time as the others.
        if (++gap % 2 == 1 && between >= work.least_bytes && between <= work.most_bytes)
            sizes.push_back({between, true});
    }
    if (sizes.empty()) sizes.push_back({work.most_bytes, false});
    return sizes;
}

namespace {

// Passes are some seconds apart because the machine's load and the cores' places can change. The best pass counts.
constexpr int passes = 3;

// The work of one rank. Thread-bound.
class Tuner {
  public:
    Tuner(perf::Rank& rank, const TuneWork& work)
        : rank_(rank),
          work_(work),
          sizes_(tuned_sizes(work)),
          send_(work.most_bytes / sizeof(float) + size_t(rank.count()), 1.0f),
          receive_(send_.size(), 0.0f) {}

    void run() {
        for (int pass = 0; pass < passes; ++pass)
            for (const Collective collective : work_.collectives) {
                run_collective(collective);
                ++done_;
            }
    }

  private:
    // The times of the previous size.
    struct Past {
        double cell_us = 0;                // of one call of each algorithm, in this pass
        std::map<std::string, double> us;  // the best of all passes
    };

    void run_collective(Collective collective) {
        const auto row = std::find_if(std::begin(calls), std::end(calls),
                                      [&](const Call& call) { return call.collective == collective; });
        perf::Collective wrapped{};
        wrapped.run = row->run;
        // One more for the size that is measured twice.
        const double share_s = work_.seconds / passes / double(work_.collectives.size()) / double(sizes_.size() + 1);
        TunedTime last{collective, true, 0, "", 0};
        perf::Case measured{};
        Past past;
        for (const TunedSize& size : sizes_) {
            const size_t parts = size_t(parts_of(collective, rank_.count()));
            const size_t count = std::max<size_t>(1, size.bytes / parts / sizeof(float));
            const size_t bytes = collective == Collective::barrier ? parts : count * parts * sizeof(float);
            if (bytes == last.bytes) continue;
            if (last.bytes > 0 && bytes >= long_message_bytes &&
                too_long(past, double(bytes) / double(last.bytes), share_s))
                break;
            last.bytes = bytes;
            last.held_out = size.held_out;
            measured = {&wrapped, call_of(collective, count), bytes};
            run_cell(last, measured, race_share * share_s, past);
        }
        // The largest size and the barrier have no larger size: a second measurement judges there.
        if (std::exchange(last.held_out, true)) return;
        run_cell(last, measured, race_share * share_s, past);
    }

    // Whether a larger size would take too much of the time; the growth from the previous size predicts it.
    bool too_long(const Past& past, double growth, double share_s) {
        if (calls_least * past.cell_us * growth > long_shares * share_s * 1e6) return true;
        const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin_;
        const double due_s = work_.seconds * (done_ + 1) / passes / double(work_.collectives.size());
        return rank_.combine(spent.count(), weftMax) > due_s;
    }

    perf::Call call_of(Collective collective, size_t count) {
        perf::Call call;
        call.send = send_.data();
        call.receive = receive_.data();
        call.count = collective == Collective::barrier ? 1 : count;
        call.comm = rank_.comm();
        return call;
    }

    void run_cell(TunedTime time, const perf::Case& measured, double seconds, Past& past) {
        std::vector<std::string> names = candidates(time.collective, measured.call.count, time.bytes, past);
        const auto times = perf::race(rank_, measured, names, seconds);
        std::map<std::string, double>& best = best_[{time.collective, time.bytes}];
        past.cell_us = 0;
        for (size_t i = 0; i < names.size(); ++i) {
            time.algorithm = names[i];
            time.us = perf::lower_decile(times[i]);
            const auto [known, fresh] = best.emplace(names[i], time.us);
            if (!fresh) known->second = std::min(known->second, time.us);
            past.cell_us += time.us;
            if (rank_.is_first()) print_output("{}\n", time.text());
        }
        past.us = best;
        if (rank_.is_first()) flush_output();
    }

    // The candidates, except slow ones at sizes where only bandwidth counts.
    std::vector<std::string> candidates(Collective collective, size_t count, size_t bytes, const Past& past) {
        const weftDataType_t type = collective == Collective::barrier ? weftInt8 : weftFloat32;
        const std::string text =
            perf::explanation(rank_, std::string(name_of(collective)).c_str(), count, type, weftSum, 0);
        std::vector<std::string> names = perf::candidates_of(text).names;
        if (bytes < long_message_bytes || past.us.empty()) return names;
        double best_us = INFINITY;
        for (const auto& [name, us] : past.us) best_us = std::min(best_us, us);
        std::erase_if(names, [&](const std::string& name) {
            const auto known = past.us.find(name);
            return known == past.us.end() || known->second > tune_far_behind * best_us;
        });
        return names;
    }

    static constexpr size_t long_message_bytes = 1 << 20;
    // A race makes at least this many calls of each algorithm and may take this multiple of a size's share of the time.
    // Races of short calls take less, which compensates for it.
    static constexpr double calls_least = 3, long_shares = 3, race_share = 0.8;

    perf::Rank& rank_;
    const TuneWork& work_;
    std::vector<TunedSize> sizes_;
    std::vector<float> send_, receive_;
    std::map<std::pair<Collective, size_t>, std::map<std::string, double>> best_;  // by size, of all passes so far
    std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
    int done_ = 0;  // collectives, in all passes
};

}  // namespace

std::string TunedTime::text() const {
    return fmt::format("{} {} {} {} {:.4f}", name_of(collective), held_out ? "held_out" : "known", bytes, algorithm,
                       us);
}

bool TunedTime::read(const std::string& line, TunedTime& time) {
    std::istringstream words(line);
    std::string collective, kind;
    if (!(words >> collective >> kind >> time.bytes >> time.algorithm >> time.us)) return false;
    const auto named = collective_named(collective);
    time.collective = named.value_or(Collective::none);
    time.held_out = kind == "held_out";
    return named && time.us > 0;
}

std::string apart_text(bool apart) { return fmt::format("apart {}", int(apart)); }

std::optional<bool> read_apart(const std::string& line) {
    if (line == apart_text(true) || line == apart_text(false)) return line == apart_text(true);
    return {};
}

namespace {

// The NUMA domain of this process, as communicators determine it (planning/machines.hpp); -1: unknown.
int domain_of_this_process() {
    const int thread = allowed_cpus().first();
    const auto found = topology::discover_this_host(options(), {.nvml = false, .verbs = false});
    if (!found) return -1;
    for (const int cpu : found->graph.of_kind(topology::NodeKind::cpu))
        if (topology::CpuMask::from_mask(found->graph.node(cpu).cpu.affinity).contains(thread)) return cpu;
    return -1;
}

void tell_whether_apart(perf::Rank& rank) {
    const double domain = domain_of_this_process();
    const double least = rank.combine(domain, weftMin), most = rank.combine(domain, weftMax);
    if (rank.is_first() && least >= 0) print_output("{}\n", apart_text(least != most));
}

}  // namespace

int run_tune_rank(const TuneWork& work) try {
    weftComm_t comm = nullptr;
    if (weftCommInitFromEnvironment(&comm, nullptr) != weftSuccess) {
        print_error("weft tune: {}\n", weftGetLastError(nullptr));
        return 1;
    }
    {
        perf::Rank rank(comm);
        tell_whether_apart(rank);
        Tuner(rank, work).run();
    }
    return weftCommDestroy(comm) == weftSuccess ? 0 : 1;
} catch (const perf::Failure& failure) {
    print_error("weft tune: {}\n", failure.what());
    return 1;
} catch (const std::bad_alloc&) {
    print_error("weft tune: two buffers of {} MiB for each rank do not fit into memory: lower --most\n",
                work.most_bytes >> 20);
    return 1;
}

}  // namespace weft::internal::tools
