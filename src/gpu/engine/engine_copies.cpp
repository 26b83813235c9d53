#include "src/gpu/engine/engine_copies.hpp"

#include "src/base/log.hpp"
#include "src/base/options.hpp"
#include "src/drivers/cuda/memory.hpp"

namespace weft::internal {

using cuda::CopySignals;
using cuda::KernelWait;

namespace {

constexpr int queues_least = 8;  // a wait holds up its hardware queue

const char* refusal_text(CopyRefusal refusal) {
    switch (refusal) {
        case CopyRefusal::none: return "does not map device memory of its peers";
        case CopyRefusal::other_call: return "makes another call";
        case CopyRefusal::operations: return "has no 64-bit stream memory operations";
        case CopyRefusal::queues: return "has few hardware queues (WEFT_GPU_QUEUES)";
        case CopyRefusal::shared: return "shares its device with a rank of its process";
        case CopyRefusal::unmapped: return "has a send buffer that is not registered, or not mapped by all ranks yet";
        case CopyRefusal::many: return "has more peers than copy engines serve";
    }
    __builtin_unreachable();
}

}  // namespace

void EngineCopies::log_refusal(const Operation& operation, CopyRefusal refusal, int rank) {
    const uint32_t bit = 1u << uint32_t(refusal);
    if (gpu_.rank != 0 || (logged_ & bit) != 0) return;
    logged_ |= bit;
    WEFT_LOG_RANK(gpu_.rank, info, coll, "{}: kernels move the data although blockPolicy is zero: rank {} {}",
                  operation.text(), rank, refusal_text(refusal));
}

bool EngineCopies::wanted(const Operation& operation, const CallSettings& settings) {
    const int policy = settings.block_policy != WEFT_CONFIG_UNDEF_INT ? settings.block_policy
                                                                      : gpu_.group->header().agreed.gpu.block_policy;
    if (policy != WEFT_BLOCK_POLICY_ZERO) [[likely]]
        return false;
    if (operation.collective != Collective::all_gather && operation.collective != Collective::all_to_all) return false;
    if (operation.count == 0) return false;  // only the kernels' barrier
    const bool few = gpu_.layout.ranks <= copying_ranks_max;
    if (!gpu_.exports_buffers || !few) log_refusal(operation, few ? CopyRefusal::none : CopyRefusal::many, gpu_.rank);
    return gpu_.exports_buffers && few;
}

CopyRefusal EngineCopies::find_send_buffer(const DeviceCall& call, CopyOffer& offer) {
    if (!gpu_.domain->copy_signals()) return CopyRefusal::operations;
    if (options().gpu_queues < queues_least) return CopyRefusal::queues;
    // The streams of two ranks may share a hardware queue. Then the wait of one holds up the write of the other.
    if (gpu_.sharing) return CopyRefusal::shared;
    const bool parted = call.operation.collective == Collective::all_to_all;
    const size_t bytes = call.operation.bytes() * size_t(parted ? gpu_.layout.ranks : 1);
    if (launcher_.registers_captured()) launcher_.register_captured(call.send, bytes);
    std::byte* at[cuda::ranks_max] = {};
    using Use = cuda::BufferRegistry::RegistrationUse;
    if (!gpu_.buffer_registry->find(call.send, bytes, call.send_mapped, at,
                                    launcher_.captures() ? Use::buffer : Use::window))
        return CopyRefusal::unmapped;
    for (int peer = 0; peer < gpu_.layout.ranks; ++peer) offer.send[peer] = reinterpret_cast<uintptr_t>(at[peer]);
    return CopyRefusal::none;
}

CopyOffer EngineCopies::offer(const DeviceCall& call) {
    CopyOffer offer{};
    offer.operation = fingerprint(call.operation);
    offer.refusal = uint64_t(find_send_buffer(call, offer));
    return offer;
}

bool EngineCopies::agreed(const DeviceCall& call, std::span<const CopyOffer> offers) {
    for (int rank = 0; rank < gpu_.layout.ranks; ++rank) {
        const CopyOffer& offer = offers[size_t(rank)];
        auto refusal = CopyRefusal(offer.refusal);
        if (offer.operation != offers[0].operation) refusal = CopyRefusal::other_call;
        if (refusal == CopyRefusal::none) continue;
        log_refusal(call.operation, refusal, rank);
        return false;
    }
    return true;
}

Status EngineCopies::launch(const DeviceCall& call, std::span<const CopyOffer> offers, uint32_t fingerprint) {
    const auto stream = static_cast<CUstream>(call.stream);
    const CopySignals::Call terms{fingerprint, launcher_.timeout_of(call.settings)};
    const size_t bytes = call.operation.bytes();
    const bool parted = call.operation.collective == Collective::all_to_all;
    return launcher_.in_order(call.stream, call.settings, [&](std::optional<int>) -> Status {
        WEFT_TRY(gpu_.domain->copy_signals()->enqueue(stream, KernelWait::ready, terms));
        // Each rank begins with another source, so that not all read from one.
        for (int distance = 0; distance < gpu_.layout.ranks; ++distance) {
            const int source = (gpu_.rank + distance) % gpu_.layout.ranks;
            const uint64_t whole = offers[size_t(source)].send[gpu_.rank],
                           from = whole + (parted ? bytes * size_t(gpu_.rank) : 0),
                           to = reinterpret_cast<uintptr_t>(call.receive) + bytes * size_t(source);
            if (from != to) WEFT_TRY(cuda::copy_async(gpu_.kernels().driver(), to, from, bytes, stream));
        }
        return gpu_.domain->copy_signals()->enqueue(stream, KernelWait::done, terms);
    });
}

}  // namespace weft::internal
