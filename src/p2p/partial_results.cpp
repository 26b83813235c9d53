#include "src/p2p/partial_results.hpp"

#include "src/base/arithmetic.hpp"
#include "src/kernels/user_reduction.hpp"

namespace weft::internal {

void PartialResults::begin(const Operation& operation, const void* operand, const PeerBuffers& peer_buffers, int rank,
                           const CpuKernels& cpu_kernels) {
    operation_ = operation;
    operand_ = operand;
    cpu_kernels_ = &cpu_kernels;
    result_ = peer_buffers.receives[0];
    rank_ = rank;
    const size_t ranks = peer_buffers.sends.size(), element = datatype_bytes[operation.type];
    stride_ = (result_.count * element + 63) / 64 * 64;
    if (received_.size() < ranks * stride_) received_.resize(ranks * stride_);
    sources_.assign(ranks, nullptr);
    scaled_places_.assign(ranks, 0);
    size_t scaled = 0;
    for (const PeerBuffer& peer_buffer : peer_buffers.sends) {
        scaled_places_[size_t(peer_buffer.peer)] = scaled;
        scaled += (peer_buffer.count * element + 63) / 64 * 64;
    }
    if (operation.scales()) {
        if (scaled_.size() < scaled) scaled_.resize(scaled);
        for (const PeerBuffer& peer_buffer : peer_buffers.sends)
            cpu_kernels.scale[operation.type](scaled_.data() + scaled_places_[size_t(peer_buffer.peer)],
                                              peer_buffer.data, peer_buffer.count, operand);
    }
    for (const PeerBuffer& peer_buffer : peer_buffers.sends)
        sources_[size_t(peer_buffer.peer)] = peer_buffer.peer == rank ? to(peer_buffer) : from(peer_buffer.peer);
}

const void* PartialResults::to(const PeerBuffer& peer_buffer) const {
    return operation_.scales() ? scaled_.data() + scaled_places_[size_t(peer_buffer.peer)] : peer_buffer.data;
}

void PartialResults::reduce() {
    if (result_.count == 0) return;
    const weftRedOp_t op = operation_.op < weftNumOps ? weftRedOp_t(operation_.op) : weftSum;
    const int ranks = int(sources_.size());
    const Averaging average =
        op == weftAvg ? averaging(weftDataType_t(operation_.type), uint32_t(ranks), true) : Averaging{};
    ReduceJob job{&result_.data, 1, sources_.data(), ranks, result_.count, average.average_of, Stores::ordinary};
    job.share_of = average.share_of;
    if (operation_.calls_function()) return reduce_by(*static_cast<const UserReduction*>(operand_), job);
    cpu_kernels_->reduce[operation_.type][op](job);
}

}  // namespace weft::internal
