#include "src/peer_access/direct_access.hpp"

#include "src/base/cancellation.hpp"
#include "src/base/log.hpp"
#include "src/base/process_token.hpp"
#include "src/segment/arena.hpp"

namespace weft::internal {

DirectAccess::DirectAccess(Segment& host, int rank, bool allowed) : host_(&host), rank_(rank), peers_(host, rank) {
    for (int other = 0; other < host.ranks() && one_process_; ++other)
        one_process_ &= host.row(other).process == process_token();
    state_ = !allowed ? State::refused : one_process_ ? State::ready : State::unknown;
}

uint64_t DirectAccess::export_buffer(const void* address, size_t bytes) const {
    if (state_ == State::refused) return 0;
    if (one_process_) return reinterpret_cast<uint64_t>(address);
    return Arena::place_of(address, bytes);
}

bool DirectAccess::map_arenas() {
    const CancelHeld held;  // opens files, which are cancellation points
    arenas_.assign(size_t(host_->ranks()), nullptr);
    for (int other = 0; other < host_->ranks(); ++other) {
        if (host_->row(other).process == process_token()) {
            auto own = Arena::get();
            if (own) arenas_[size_t(other)] = (*own)->base();
        } else {
            arenas_[size_t(other)] = peers_.of(other);
        }
        if (!arenas_[size_t(other)]) return false;
    }
    return true;
}

void DirectAccess::agree(bool all_have_mapped) {
    state_ = all_have_mapped ? State::ready : State::refused;
    if (rank_ == 0)
        WEFT_LOG_RANK(rank_, info, shm, "buffers of weftHostAlloc are {} in place",
                      all_have_mapped ? "read and written" : "not used");
}

}  // namespace weft::internal
