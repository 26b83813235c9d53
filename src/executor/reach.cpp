#include "src/executor/reach.hpp"

#include <map>

#include "src/base/arena.hpp"
#include "src/base/log.hpp"
#include "src/base/peer_memory.hpp"

namespace weft {

Reach::Reach(HostGroup& host, int rank, bool allowed) : host_(&host), rank_(rank) {
    for (int other = 0; other < host.ranks() && one_process_; ++other)
        one_process_ &= host.row(other).process == process_token();
    state_ = !allowed ? State::refused : one_process_ ? State::ready : State::unknown;
}

uint64_t Reach::offer(const void* address, size_t bytes) const {
    if (state_ == State::refused) return 0;
    if (one_process_) return reinterpret_cast<uint64_t>(address);
    return Arena::place_of(address, bytes);
}

bool Reach::map_arenas() {
    arenas_.assign(size_t(host_->ranks()), nullptr);
    std::map<uint64_t, std::byte*> mapped;  // by process
    for (int other = 0; other < host_->ranks(); ++other) {
        const RankRow& row = host_->row(other);
        std::byte*& base = mapped[row.process];
        if (!base) {
            if (row.process == process_token()) {
                auto own = Arena::get();
                if (!own) return false;
                base = (*own)->memory().data();
            } else {
                auto memory = map_peer_memory({row.pid, row.arena_fd, row.process, row.arena_inode});
                if (!memory) {
                    WEFT_LOG_RANK(rank_, info, shm,
                                  "the buffers of rank {} (pid {}) cannot be mapped, so messages are staged: {}", other,
                                  row.pid, memory.status().sentence());
                    return false;
                }
                base = (*memory)->data();
                maps_.push_back(std::move(*memory));
            }
        }
        arenas_[size_t(other)] = base;
    }
    return true;
}

void Reach::agree(bool all_have_mapped) {
    state_ = all_have_mapped ? State::ready : State::refused;
    if (rank_ == 0)
        WEFT_LOG_RANK(rank_, info, shm, "buffers of weftMemAlloc are {} in place",
                      all_have_mapped ? "read and written" : "not used");
}

}  // namespace weft
