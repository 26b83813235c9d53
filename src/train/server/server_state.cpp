#include "src/train/server/server_state.hpp"

#include <algorithm>
#include <cstring>

#include "src/base/datatype.hpp"
#include "src/train/local_arithmetic.hpp"

namespace weft::internal::train {

ServerState::ServerState(ServerRules rules, std::vector<ServerKey> keys, int workers)
    : rules_(rules), keys_(std::move(keys)), clocks_(size_t(workers)), finished_(size_t(workers)) {
    for (const ServerKey& key : keys_) {
        const size_t bytes = key.tensor.facts.count * size_of(state_type(key.tensor.facts.type));
        sums_.emplace_back(rules_.accepted > 0 ? bytes : 0);
    }
}

int ServerState::slowest() const {
    int found = -1;
    for (size_t worker = 0; worker < clocks_.size(); ++worker)
        if (!finished_[worker] && (found < 0 || clocks_[worker] < clocks_[size_t(found)])) found = int(worker);
    return found;
}

ServerAnswer ServerState::answer() const {
    const int worker = slowest();
    return {counters_.steps, worker < 0 ? counters_.steps : clocks_[size_t(worker)]};
}

bool ServerState::may_pull(int worker) const {
    const uint64_t clock = clocks_[size_t(worker)];
    if (rules_.accepted > 0) return counters_.steps >= clock;
    const int last = slowest();
    return last < 0 || clock - std::min(clock, clocks_[size_t(last)]) <= rules_.staleness;
}

Result<ServerAnswer> ServerState::push(int worker, uint64_t step, const std::byte* message) {
    std::lock_guard lock(mutex_);
    WEFT_TRY(failure_.copy());
    WEFT_TRY(ended_by(take(worker, step, message)));
    return answer();
}

Status ServerState::take(int worker, uint64_t step, const std::byte* message) {
    uint64_t& clock = clocks_[size_t(worker)];
    clock = rules_.accepted > 0 ? step + 1 : clock + 1;
    changed_.notify_all();
    if (rules_.accepted == 0) return apply(message);
    if (step < counters_.steps) {
        ++counters_.dropped;
        return ok();
    }
    for (size_t i = 0; i < keys_.size(); ++i)
        add_to_state(sums_[i].data(), message + keys_[i].offset_bytes, keys_[i].tensor.facts.count,
                     keys_[i].tensor.facts.type);
    ++counters_.applied;
    ++accepted_;
    return apply_accepted();
}

Status ServerState::apply(const std::byte* message) {
    for (const ServerKey& key : keys_) WEFT_TRY(update(key, message + key.offset_bytes));
    ++counters_.applied;
    ++counters_.steps;
    return ok();
}

Status ServerState::apply_accepted() {
    const auto active = std::count(finished_.begin(), finished_.end(), false);
    // Workers that have finished do not make the others wait.
    if (accepted_ == 0 || accepted_ < std::min(rules_.accepted, int(active))) return ok();
    for (size_t i = 0; i < keys_.size(); ++i) {
        const TensorFacts& facts = keys_[i].tensor.facts;
        // The mean is shorter than the sum, or as long: it is written in place.
        take_mean(sums_[i].data(), size_t(accepted_), facts.count, facts.type);
        WEFT_TRY(update(keys_[i], sums_[i].data()));
        std::fill(sums_[i].begin(), sums_[i].end(), std::byte(0));
    }
    accepted_ = 0;
    ++counters_.steps;
    changed_.notify_all();
    return ok();
}

Status ServerState::update(const ServerKey& key, const void* gradient) const {
    const weftDataType_t type = key.tensor.facts.type;
    const size_t count = key.tensor.facts.count;
    if (count == 0) return ok();
    if (!rules_.update) {
        step_sgd(key.tensor.data, gradient, count, type, rules_.learning_rate);
        return ok();
    }
    std::string reason = "it threw an exception";
    try {
        const weftResult_t result =
            rules_.update(key.parameter, key.tensor.data, gradient, count, type, rules_.update_context);
        if (result == weftSuccess) return ok();
        reason = fmt::format("it returned {}", int(result));
    } catch (...) {
    }
    return fail(error::train_server_update, "config.update failed for parameter {}, \"{}\": {}", key.parameter,
                key.tensor.name, reason);
}

Status ServerState::ended_by(Status status) {
    if (!status && failure_) failure_ = status.copy();
    if (!status) changed_.notify_all();
    return status;
}

Status ServerState::too_slow(int worker) const {
    const int last = slowest();
    const int rank = rules_.servers + last;
    return fail(
               error::train_server_slow,
               "rank {}, at clock {}, has waited {} ms for rank {}, the slowest worker, which is at clock {}: find out "
               "why that rank is slow, or raise config.timeoutMs",
               rules_.servers + worker, clocks_[size_t(worker)], rules_.timeout_ms, rank, clocks_[size_t(last)])
        .about({.rank = rank, .peer = rules_.servers + worker});
}

Result<ServerAnswer> ServerState::pull(int worker, std::byte* message) {
    std::unique_lock lock(mutex_);
    const auto ended = [&] { return !failure_ || may_pull(worker); };
    if (rules_.timeout_ms > 0) {
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(rules_.timeout_ms);
        if (!changed_.wait_until(lock, deadline, ended)) return ended_by(too_slow(worker));
    } else {
        changed_.wait(lock, ended);
    }
    WEFT_TRY(failure_.copy());
    const int last = slowest();
    const uint64_t clock = clocks_[size_t(worker)];
    if (rules_.accepted == 0)
        counters_.largest_lead = std::max(counters_.largest_lead, clock - std::min(clock, clocks_[size_t(last)]));
    for (const ServerKey& key : keys_)
        if (const size_t bytes = key.tensor.facts.count * size_of(key.tensor.facts.type); bytes > 0)
            memcpy(message + key.offset_bytes, key.tensor.data, bytes);
    return answer();
}

Result<ServerAnswer> ServerState::finish(int worker) {
    std::lock_guard lock(mutex_);
    WEFT_TRY(failure_.copy());
    finished_[size_t(worker)] = true;
    changed_.notify_all();
    if (rules_.accepted > 0) WEFT_TRY(ended_by(apply_accepted()));
    return answer();
}

void ServerState::fail_all(const Status& failure) {
    std::lock_guard lock(mutex_);
    (void)ended_by(failure.copy());
}

Status ServerState::failure() {
    std::lock_guard lock(mutex_);
    return failure_.copy();
}

ServerCounters ServerState::counters() {
    std::lock_guard lock(mutex_);
    return counters_;
}

}  // namespace weft::internal::train
