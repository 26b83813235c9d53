#include "src/p2p/partials.hpp"

#include "src/base/arithmetic.hpp"
#include "src/kernels/user_reduction.hpp"

namespace weft::internal {

void Partials::begin(const Operation& operation, const void* operand, const Portions& portions, int rank,
                     const CpuKernels& cpu_kernels) {
    operation_ = operation;
    operand_ = operand;
    cpu_kernels_ = &cpu_kernels;
    result_ = portions.receives[0];
    rank_ = rank;
    const size_t ranks = portions.sends.size(), element = datatype_bytes[operation.type];
    stride_ = (result_.count * element + 63) / 64 * 64;
    if (received_.size() < ranks * stride_) received_.resize(ranks * stride_);
    sources_.assign(ranks, nullptr);
    scaled_places_.assign(ranks, 0);
    size_t scaled = 0;
    for (const Portion& portion : portions.sends) {
        scaled_places_[size_t(portion.peer)] = scaled;
        scaled += (portion.count * element + 63) / 64 * 64;
    }
    if (operation.scales()) {
        if (scaled_.size() < scaled) scaled_.resize(scaled);
        for (const Portion& portion : portions.sends)
            cpu_kernels.scale[operation.type](scaled_.data() + scaled_places_[size_t(portion.peer)], portion.data,
                                         portion.count, operand);
    }
    for (const Portion& portion : portions.sends)
        sources_[size_t(portion.peer)] = portion.peer == rank ? to(portion) : from(portion.peer);
}

const void* Partials::to(const Portion& portion) const {
    return operation_.scales() ? scaled_.data() + scaled_places_[size_t(portion.peer)] : portion.data;
}

void Partials::reduce() {
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
