#include "src/executor/exported_buffers.hpp"

#include <atomic>
#include <cstring>

namespace weft::internal {

ExportedBuffers::ExportedBuffers(const Plan& plan, const FlagSync& flags)
    : plan_(&plan),
      flags_(&flags),
      inputs_(size_t(plan.schedule->ranks)),
      outputs_(size_t(plan.schedule->ranks)),
      cma_addresses_(plan.two_shot.cma ? size_t(plan.schedule->ranks) : 0) {}

BufferAddresses ExportedBuffers::payload_of(int rank, uint64_t tile) const {
    BufferAddresses addresses;
    memcpy(&addresses, flags_->line(rank, tile).payload, sizeof addresses);
    return addresses;
}

BufferAddresses ExportedBuffers::export_own(const CallBuffers& buffers) {
    BufferAddresses own{};
    exports_input_ = false;
    if (plan_->two_shot.exports_buffers) {
        own.send_address = plan_->two_shot.direct_access->export_buffer(buffers.send(), plan_->bytes());
        own.receive_address = plan_->two_shot.direct_access->export_buffer(buffers.receive(), plan_->bytes());
        exports_input_ = own.send_address != 0 && plan_->two_shot.direct_access->state() == DirectAccess::State::ready;
    }
    if (plan_->two_shot.cma) {
        own.own_send_address = reinterpret_cast<uint64_t>(buffers.send());
        own.own_receive_address = reinterpret_cast<uint64_t>(buffers.receive());
        exports_input_ |= uses_cma();
    }
    shared_ = exports_input_;
    last_tile_ = plan_->tiles - 1;
    return own;
}

ExportedBuffers::Use ExportedBuffers::decide() {
    agreement_due_ = plan_->two_shot.cma && plan_->two_shot.cma->state() == Cma::State::unknown
                         ? uint32_t(Agreement::cma_probed)
                         : 0;
    const DirectAccess::State access =
        plan_->two_shot.exports_buffers ? plan_->two_shot.direct_access->state() : DirectAccess::State::refused;
    bool all = access == DirectAccess::State::ready, some = false;
    for (int rank = 0; rank < plan_->schedule->ranks; ++rank) {
        const BufferAddresses addresses = payload_of(rank, 0);
        const bool readable = access == DirectAccess::State::ready && addresses.send_address != 0;
        inputs_[size_t(rank)] =
            readable ? plan_->two_shot.direct_access->translate(rank, addresses.send_address) : nullptr;
        some |= readable;
        all &= readable && addresses.receive_address != 0;
        if (all) outputs_[size_t(rank)] = plan_->two_shot.direct_access->translate(rank, addresses.receive_address);
        if (access == DirectAccess::State::unknown && (addresses.send_address | addresses.receive_address) != 0)
            agreement_due_ |= Agreement::arenas_mapped;
        if (plan_->two_shot.cma) cma_addresses_[size_t(rank)] = addresses;
    }
    const bool cma = !all && uses_cma();
    shared_ = all || cma || some;
    last_tile_ = all || cma ? 0 : plan_->tiles - 1;
    if (!shared_) return Use::none;
    // Rule 9b: a rank that left before it saw our arrival flag has taken its buffers back, so check after the flag.
    // The fence orders our flag before the check; it pairs with the fence in Communicator::leave_buffers().
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (plan_->flags.block->aborted()) return Use::aborted;
    return all ? Use::direct : cma ? Use::cma : Use::inputs;
}

BufferAddresses ExportedBuffers::answer() const {
    BufferAddresses own{};
    if ((agreement_due_ & Agreement::arenas_mapped) && plan_->two_shot.direct_access->map_arenas())
        own.answer |= Agreement::arenas_mapped;
    if ((agreement_due_ & Agreement::cma_probed) && plan_->two_shot.cma->probe()) own.answer |= Agreement::cma_probed;
    return own;
}

void ExportedBuffers::agree(uint64_t tile) {
    uint32_t all = ~uint32_t(0);
    for (int rank = 0; rank < plan_->schedule->ranks; ++rank) all &= payload_of(rank, tile).answer;
    if (agreement_due_ & Agreement::arenas_mapped) plan_->two_shot.direct_access->agree(all & Agreement::arenas_mapped);
    if (agreement_due_ & Agreement::cma_probed) plan_->two_shot.cma->agree(all & Agreement::cma_probed);
}

}  // namespace weft::internal
