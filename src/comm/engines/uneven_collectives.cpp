#include "src/comm/engines/uneven_collectives.hpp"

#include "src/kernels/user_reduction.hpp"

namespace weft::internal {

static constexpr uint64_t parts_name = 0xc2b2ae3d27d4eb4fu;

MessageCaller caller_for(Collective collective) {
    switch (collective) {
        case Collective::gather_v: return MessageCaller::gather_v;
        case Collective::scatter_v: return MessageCaller::scatter_v;
        case Collective::all_gather_v: return MessageCaller::all_gather_v;
        case Collective::reduce_scatter_v: return MessageCaller::reduce_scatter_v;
        default: return MessageCaller::all_to_all_v;
    }
}

UnevenCollectives::UnevenCollectives(RankContext& context) : context_(context), parts_(context, parts_name) {}

Begun UnevenCollectives::begin(const Call& call, const UnevenCall& collective) {
    operation_ = collective.operation;
    limit_ = {call.settings.timeout_ms, call.timeout_set_by};
    ++context_.sequence;
    context_.waiting.seen_here();
    context_.row().position.enter(context_.sequence, operation_);
    context_.watchdog.begin();
    Exchange& exchange = parts_.get();
    const PeerBuffers& peer_buffers = *collective.peer_buffers;
    const auto type = weftDataType_t(operation_.type);
    const Exchange::CallTag tag{caller_for(operation_.collective), uint16_t(context_.sequence), operation_.op};
    if (operation_.collective == Collective::reduce_scatter_v) {
        partial_results_.begin(operation_, collective.operand.data, peer_buffers, context_.rank,
                               context_.planner.cpu_kernels());
        for (const PeerBuffer& part : peer_buffers.sends)
            if (part.peer != context_.rank) {
                exchange.receive(part.peer, partial_results_.from(part.peer), peer_buffers.receives[0].count, type,
                                 tag);
                exchange.send(part.peer, partial_results_.to(part), part.count, type, tag);
            }
        return Begun::yes;
    }
    for (const PeerBuffer& part : peer_buffers.receives) exchange.receive(part.peer, part.data, part.count, type, tag);
    for (const PeerBuffer& part : peer_buffers.sends) exchange.send(part.peer, part.data, part.count, type, tag);
    return Begun::yes;
}

Progress UnevenCollectives::advance() {
    const Progress progress = parts_.advance();
    if (progress == Progress::failed) [[unlikely]]
        failure_ = parts_.existing().take_failure();
    if (progress != Progress::done || operation_.collective != Collective::reduce_scatter_v) return progress;
    try {
        partial_results_.reduce();
    } catch (const UserReductionFailed& failed) {
        failure_ = failed.status(context_.rank, context_.sequence, operation_);
        return Progress::failed;
    }
    return progress;
}

Status UnevenCollectives::look() {
    context_.watch(limit_);
    return context_.watchdog.look(parts_.existing().missing(), context_.sequence, context_.position().operation,
                                  context_.waiting.silence_us(), parts_.existing().connecting());
}

}  // namespace weft::internal
