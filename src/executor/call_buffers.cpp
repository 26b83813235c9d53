#include "src/executor/call_buffers.hpp"

#include <algorithm>

namespace weft::internal {

CallBuffers::CallBuffers(const Plan& plan)
    : plan_(&plan), average_(plan.average()), changes_input_(plan.changes_input()) {
    const Schedule& schedule = *plan.schedule;
    const auto begin_of = [&](Held held) {
        return held == Held::own ? first_held(held, schedule.rank, plan.bytes()) : 0;
    };
    input_begin_ = begin_of(input_of(schedule.collective, schedule.rank, schedule.root));
    output_begin_ = begin_of(output_of(schedule.collective, schedule.rank, schedule.root));
    const size_t tile_bytes = size_t(schedule.parts()) * std::min(plan.tile_bytes, plan.bytes());
    if (plan.scaled() && schedule.ranks > 1) scaled_.resize(tile_bytes + 64);
}

const std::byte* CallBuffers::scaled_input(size_t offset, size_t bytes) {
    plan_->cpu_kernels->scale[plan_->type()](scaled_.data(), send_ + offset, bytes / size_of(plan_->type()), operand_);
    return scaled_.data();
}

void CallBuffers::copy_changed_input(std::byte* destination, size_t offset, size_t bytes) {
    const void* from = send_ + offset;
    if (plan_->scaled())
        return plan_->cpu_kernels->scale[plan_->type()](destination, from, bytes / size_of(plan_->type()), operand_);
    void* to = destination;
    reduce(reduction(&to, 1, &from, 1, bytes, false, 0, 0));
}

// Destinations that are stored past the caches come first in a job.
ReduceJob CallBuffers::reduction(void** destinations, int destination_count, const void* const* sources,
                                 int source_count, size_t bytes, bool finish, int streamed, int own,
                                 Stores of_slot) const {
    const int contribution = !average_.rounds_shares ? ReduceJob::every_source : own < 0 ? ReduceJob::no_source : own;
    Stores stores = plan_->stores;
    if (of_slot == Stores::streaming) {
        std::rotate(destinations, destinations + destination_count - 1, destinations + destination_count);
        streamed = 1 + (stores == Stores::streaming ? streamed : 0);
        stores = Stores::streaming;
    }
    return {destinations,
            destination_count,
            sources,
            source_count,
            bytes / size_of(plan_->type()),
            finish ? average_.average_of : 0,
            stores,
            streamed,
            average_.share_of,
            contribution};
}

}  // namespace weft::internal
