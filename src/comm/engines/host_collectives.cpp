#include "src/comm/engines/host_collectives.hpp"

#include "src/base/cancellation.hpp"

namespace weft::internal {

// All ranks refuse alike, because the reasons are agreed facts.
Begun HostCollectives::choose(const CollectiveCall& collective, uint8_t preference) {
    const CancelHeld held;
    auto choice = context_.planner.choose(collective.operation, preference);
    auto bound = choice ? context_.planner.bind(collective.operation, *choice) : Result<Binding*>(choice.take_status());
    if (!bound) {
        --context_.sequence;  // no rank posted anything
        failure_ = bound.take_status();
        return Begun::refused;
    }
    planned_ = collective;
    preference_ = preference;
    choice_ = *choice;
    Operation chosen = collective.operation;
    chosen.choice = choice_.hash();
    context_.row().position.enter(context_.sequence, chosen);
    context_.watchdog.begin();
    binding_ = *bound;
    failure_ = connect();
    return failure_ ? Begun::yes : Begun::failed;
}

// advance() calls this again until the peers of new connections listen.
Status HostCollectives::connect() {
    const CancelHeld held;
    auto connected = context_.planner.connect(*binding_, missing_binding_);
    if (!connected) return connected.take_status();
    if (!*connected) return ok();
    auto plan = context_.planner.plan(planned_.operation, choice_, *binding_);
    if (!plan) return plan.take_status();
    prepared_ = plans_.insert(PlanKey(planned_.operation, preference_), std::move(*plan));
    prepared_->run->start(planned_.send, planned_.receive, planned_.operand.data, context_.sequence);
    return ok();
}

Progress HostCollectives::advance() {
    if (!prepared_) [[unlikely]] {
        failure_ = connect();
        if (!failure_) return Progress::failed;
        if (!prepared_) return Progress::blocked;
    }
    const Progress progress = prepared_->run->advance();
    if (progress == Progress::done || progress == Progress::blocked || progress == Progress::moved) [[likely]] {
        if (progress != Progress::blocked) context_.waiting.stir();
        return progress;
    }
    failure_ = progress == Progress::mismatch
                   ? context_.watchdog.mismatch(prepared_->run->suspect(), context_.sequence, prepared_->plan.operation,
                                                prepared_->run->suspect_operation())
                   : prepared_->run->take_failure();
    return Progress::failed;
}

Status HostCollectives::look() {
    context_.watch(limit_);
    return context_.watchdog.look(*blocked().missing, context_.sequence,
                                  prepared_ ? prepared_->plan.operation : context_.position().operation,
                                  context_.waiting.silence_us(), !prepared_);
}

bool HostCollectives::may_be_using(int peer, uint64_t gave_up) const {
    if (!prepared_) return false;
    if (gave_up == 0 && prepared_->run->may_be_reading(peer)) {
        // A peer that enters the call later sees the abort flag before it reads.
        const auto position = context_.segment->row(peer).position.read();
        return !position || position->entered >= context_.sequence;
    }
    return prepared_->run->may_be_using(peer) && gave_up < context_.sequence;
}

}  // namespace weft::internal
