// stragglers.hpp: names the ranks of a training whose own work takes long.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "src/base/clock.hpp"
#include "src/train/peers.hpp"
#include "src/train/straggler_scores.hpp"

namespace weft::internal::train {

struct StragglerSettings {
    double interval_seconds = 60;
    uint64_t interval_steps = 0;  // 0: follows from interval_seconds
    double threshold = 0.75;
};

// All ranks make the same calls, except the scores'. A step without a report makes no call on the communicator: all
// ranks know from the last report in which step the next one is due. Thread-bound, except abort(), which is thread-safe.
class Stragglers {
  public:
    // All ranks of `comm` call it, also one that has failed: `own` is its failure.
    static Result<std::shared_ptr<Stragglers>> make(Status own, const StragglerSettings& settings, weftComm_t comm,
                                                    Clock clock = now_us);

    int ranks() const { return peers_->ranks(); }
    // After a training step, whose own work took `seconds`; 0: it had none. Whether the ranks were compared.
    Status step(double seconds, bool& reported);
    // Compares the ranks now.
    Status report();
    // Of the last report, by rank; empty before the first one.
    const std::vector<StepTimes>& times() const { return times_; }
    void abort() { peers_->abort(); }
    Status settle() { return ok(); }
    // Other ranks may wait for a call that this rank will not make.
    void end_by_exception() noexcept { peers_->abort(); }

  private:
    Stragglers(const StragglerSettings& settings, std::unique_ptr<Peers> peers, Clock clock)
        : settings_(settings), peers_(std::move(peers)), clock_(clock) {}
    Status learn_hosts();
    Status gather(double elapsed_seconds, double& slowest_seconds);
    void name_stragglers() const;

    StragglerSettings settings_;
    std::unique_ptr<Peers> peers_;
    Clock clock_;
    std::vector<std::string> hosts_;      // on rank 0
    std::vector<double> own_;             // seconds of this rank's steps since the last report
    uint64_t steps_ = 0, steps_due_ = 1;  // since the last report, and at the next one
    int64_t begun_us_ = 0;
    double best_ = 0;  // the smallest median of this rank
    std::vector<StepTimes> times_;
    Status failure_;  // the object has ended
};

}  // namespace weft::internal::train
