#include "race.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>

namespace perf {

namespace {

// A round of the fastest algorithm lasts about this long, so that the clock and the barrier do not matter.
constexpr double round_us = 100;
// If it takes no longer, a round has at least this many calls. Without waits for the root, consecutive calls overlap.
// Then a call in a series takes a tenth of a single call's time, and both kinds must not be mixed.
constexpr int few = 8;
constexpr double some_us = 1000;
// An algorithm that is slower than the best by this factor runs in one round of four only.
constexpr double far_behind = 2;

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// The calls of one algorithm. Thread-bound to the rank's thread.
class Runner {
  public:
    Runner(Rank& rank, const Case& measured, const std::string& algorithm)
        : rank_(rank), measured_(measured), algorithm_(algorithm) {}

    // The first call connects. The second gives the time of a call; short calls need more samples.
    void warm_up() {
        time(1);
        double call_us = rank_.combine(time(1), weftMax);
        if (call_us < round_us) call_us = rank_.combine(time(8), weftMax);
        times_.push_back(call_us);
    }
    // All algorithms make the same number of calls: where no rank waits for the root, consecutive calls overlap.
    void set_calls(int calls) { calls_ = calls; }
    double least_us() const { return *std::min_element(times_.begin(), times_.end()); }
    void run_round() { times_.push_back(time(calls_)); }
    // The slowest rank's times. For small messages the first call is an outlier: it counts only if it is the only one.
    std::vector<double> finish() {
        rank_.combine(times_, weftMax);
        if (calls_ > 1 && times_.size() > 1) times_.erase(times_.begin());
        std::sort(times_.begin(), times_.end());
        return times_;
    }

  private:
    double time(int calls) {
        rank_.barrier();
        weftCallConfig_t config = WEFT_CALL_CONFIG_INITIALIZER;
        config.algo = algorithm_.c_str();
        rank_.expect(weftCommSetCallConfig(rank_.comm(), &config), "weftCommSetCallConfig");
        const double took = time_calls(rank_, measured_, calls);
        // The next barrier must use the selector's choice again.
        rank_.expect(weftCommSetCallConfig(rank_.comm(), nullptr), "weftCommSetCallConfig");
        return took / calls;
    }

    Rank& rank_;
    const Case& measured_;
    const std::string& algorithm_;
    int calls_ = 1;  // in each round
    std::vector<double> times_;
};

}  // namespace

Candidates candidates_of(const std::string& explanation) {
    static const std::string candidate = "candidate ", chosen = "chosen: ";
    Candidates found;
    for (size_t from = 0; from < explanation.size();) {
        const size_t end = std::min(explanation.find('\n', from), explanation.size());
        const std::string line = explanation.substr(from, end - from);
        from = end + 1;
        if (line.starts_with(candidate)) {
            const size_t behind_name = line.find(':'), cost = line.find(';');
            if (behind_name < cost && line.substr(0, cost).find(", out: ") == std::string::npos)
                found.names.push_back(line.substr(candidate.size(), behind_name - candidate.size()));
        } else if (line.starts_with(chosen)) {
            char name[64] = "?", transport[64] = "?";
            std::sscanf(line.c_str(), "chosen: %63s over %63[^, \n]", name, transport);
            found.chosen = name;
            found.transport = transport;
        }
    }
    return found;
}

std::string explanation(Rank& rank, const char* collective, size_t count, weftDataType_t type, weftRedOp_t op,
                        int root) {
    std::string text(4096, 0);
    for (size_t needed = text.size();; text.resize(needed)) {
        rank.expect(weftCommExplainCollective(rank.comm(), collective, count, type, op, root, text.data(), text.size(),
                                              &needed),
                    "weftCommExplainCollective");
        if (needed <= text.size()) break;
    }
    return text.c_str();
}

std::vector<std::vector<double>> race(Rank& rank, const Case& measured, const std::vector<std::string>& algorithms,
                                      double seconds) {
    if (algorithms.empty()) return {};
    const auto start = Clock::now();
    std::vector<Runner> runners;
    for (const std::string& algorithm : algorithms) runners.emplace_back(rank, measured, algorithm);
    for (Runner& runner : runners) runner.warm_up();
    // Values that all ranks agree on: the elapsed time and the least time of each algorithm.
    // The clock counts, and not the calls' sum, because other processes may use the cores.
    std::vector<double> known(runners.size() + 1);
    for (int round = 0;; ++round) {
        known[0] = seconds_since(start);
        for (size_t i = 0; i < runners.size(); ++i) known[i + 1] = runners[i].least_us();
        rank.combine(known, weftMax);
        if (round > 0 && known[0] >= seconds) break;
        const double best_us = *std::min_element(known.begin() + 1, known.end());
        const double fill = std::max(round_us / best_us, std::min(double(few), some_us / best_us));
        const int calls = int(std::clamp(fill, 0.0, 4096.0)) + 1;
        if (round == 0)
            for (Runner& runner : runners) runner.set_calls(calls);
        for (size_t i = 0; i < runners.size(); ++i)
            if (round % 4 == 0 || known[i + 1] <= far_behind * best_us) runners[i].run_round();
    }
    std::vector<std::vector<double>> times;
    for (Runner& runner : runners) times.push_back(runner.finish());
    return times;
}

}  // namespace perf
