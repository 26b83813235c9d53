#include "src/train/stragglers.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "src/base/log.hpp"
#include "src/train/agreement.hpp"

namespace weft::internal::train {

namespace {

constexpr uint64_t first_steps = 10;  // before the first report, which learns how long a step takes

struct StragglerMessage {
    StepTimes times;
    double elapsed_seconds;
};

}  // namespace

Result<std::shared_ptr<Stragglers>> Stragglers::make(Status own, const StragglerSettings& settings, weftComm_t comm,
                                                     Clock clock) {
    auto peers = Peers::make(comm);
    if (!peers) return own ? peers.take_status() : std::move(own);
    std::shared_ptr<Stragglers> made(new Stragglers(settings, std::move(*peers), clock));
    std::string text = fmt::format("stragglers each {} seconds or {} steps, below {}\n", settings.interval_seconds,
                                   settings.interval_steps, settings.threshold);
    WEFT_TRY(check_agreement(*made->peers_, std::move(text), std::move(own)));
    WEFT_TRY(made->learn_hosts());
    made->steps_due_ = settings.interval_steps > 0 ? settings.interval_steps : first_steps;
    made->begun_us_ = clock();
    return made;
}

Status Stragglers::learn_hosts() {
    using Name = std::array<char, 64>;
    Name own{};
    if (gethostname(own.data(), own.size() - 1) != 0) own = {'?'};
    std::vector<Name> all{size_t(ranks())};
    WEFT_TRY(peers_->all_gather(own.data(), all.data(), own.size()));
    for (const Name& name : all) hosts_.emplace_back(name.data());
    return ok();
}

Status Stragglers::step(double seconds, bool& reported) {
    reported = false;
    if (!failure_) return failure_.copy();
    const bool valid = seconds >= 0 && std::isfinite(seconds);
    // The step counts in any case: the other ranks count it.
    if (valid && seconds > 0) own_.push_back(seconds);
    ++steps_;
    if (steps_ >= steps_due_) {
        WEFT_TRY(report());
        reported = true;
    }
    if (valid) return ok();
    return fail(error::argument_value,
                "seconds is {}; it must be the duration of the step's own work. The step counts without a time",
                seconds);
}

Status Stragglers::report() {
    if (!failure_) return failure_.copy();
    double slowest_seconds = 0;
    Status gathered = gather(double(clock_() - begun_us_) * 1e-6, slowest_seconds);
    if (!gathered) {
        failure_ = gathered.copy();
        peers_->abort();
        return gathered;
    }
    if (settings_.interval_steps == 0 && steps_ > 0)
        steps_due_ = steps_to_next_report(settings_.interval_seconds, slowest_seconds, steps_);
    own_.clear();
    steps_ = 0;
    begun_us_ = clock_();
    if (peers_->rank() == 0) name_stragglers();
    return ok();
}

Status Stragglers::gather(double elapsed_seconds, double& slowest_seconds) {
    StragglerMessage own{{median_of(own_), best_}, elapsed_seconds};
    if (own.times.median > 0) own.times.best = best_ > 0 ? std::min(best_, own.times.median) : own.times.median;
    std::vector<StragglerMessage> all{size_t(ranks())};
    WEFT_TRY(peers_->all_gather(&own, all.data(), sizeof own));
    best_ = own.times.best;
    times_.clear();
    for (const StragglerMessage& message : all) {
        times_.push_back(message.times);
        slowest_seconds = std::max(slowest_seconds, message.elapsed_seconds);
    }
    return ok();
}

void Stragglers::name_stragglers() const {
    const std::vector<double> fastest = scores_against_fastest(times_), own = scores_against_own_best(times_);
    for (size_t rank = 0; rank < times_.size(); ++rank)
        if (fastest[rank] < settings_.threshold || own[rank] < settings_.threshold)
            WEFT_LOG_RANK(peers_->rank(), warn, coll,
                          "rank {} on host {} is a straggler: its steps take {:.4g} s; score {:.2f} against the "
                          "fastest rank, {:.2f} against its own best; the threshold is {}",
                          rank, hosts_[rank], times_[rank].median, fastest[rank], own[rank], settings_.threshold);
}

}  // namespace weft::internal::train
