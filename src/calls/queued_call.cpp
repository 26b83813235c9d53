#include "src/calls/queued_call.hpp"

namespace weft::internal {

void QueuedCall::keep_pointed() {
    auto kept = std::make_shared<Pointed>();
    const auto keep_reduction = [&](const Operand& operand) {
        if (operand.data) kept->reduction = communicator().inputs().reductions.share(operand.reduction);
    };
    if (const auto* collective = std::get_if<CollectiveCall>(&call.kind)) keep_reduction(collective->operand);
    if (auto* uneven = std::get_if<UnevenCall>(&call.kind)) {
        keep_reduction(uneven->operand);
        kept->peer_buffers = *uneven->peer_buffers;
        uneven->peer_buffers = &kept->peer_buffers;
    }
    if (auto* access = std::get_if<AccessCall>(&call.kind); access && access->access) {
        kept->access = *access->access;
        access->access = &kept->access;
    }
    pointed = std::move(kept);
}

Status QueuedCall::begin() {
    if (async_operation) return async_operation->begin();
    return communicator().begin(call);
}

void CallQueue::pop_front() {
    // Releases what the call owns; the vector keeps the entry.
    QueuedCall& first = calls_[first_++];
    first.async_operation.reset();
    first.pointed.reset();
    first.coalesced.reset();
    if (empty()) clear();
}

std::vector<QueuedCall> CallQueue::take() {
    calls_.erase(calls_.begin(), begin());
    first_ = 0;
    return std::exchange(calls_, {});
}

void CallQueue::put(std::vector<QueuedCall> calls) {
    calls_ = std::move(calls);
    first_ = 0;
}

}  // namespace weft::internal
