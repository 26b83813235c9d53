#include "src/rma/signals.hpp"

#include "src/segment/shm_layout.hpp"

namespace weft::internal {

std::string owed_signals(int rank, int number, uint64_t came, uint64_t wanted) {
    return fmt::format("has sent {} of the {} signals with index {} and context {} that rank {} waits for", came,
                       wanted, number % WEFT_SIGNALS, number / WEFT_SIGNALS, rank);
}

Status Signals::make(size_t& heap_used) {
    if (place_ != 0) return ok();
    const size_t bytes = segment_->locals().size() * sizeof(Counters);
    if (heap_used + bytes > segment_->heaps().connections_end())
        return fail(error::shm_full,
                    "rank {} has no room for the signals of its windows: connections use the whole heap", rank_);
    WEFT_TRY(segment_->heaps().back(segment_->place(rank_), heap_used, bytes));
    place_ = heap_used;
    heap_used += (bytes + line_bytes - 1) / line_bytes * line_bytes;
    return ok();
}

void Signals::found(int peer, uint64_t place) {
    if (!segment_->local(peer)) return;
    of(seen_, peer).raised = raised_for(peer, place, rank_);
}

bool Signals::enter(int peer) {
    segment_->row(rank_).window.touching.store(peer + 1, std::memory_order_relaxed);
    // We store our word, then check. A rank that frees its memory sets the abort word or its state, then checks our word.
    // Pairs with the fence in Windows::await_untouched().
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (!segment_->aborted() && segment_->row(peer).state.load(std::memory_order_acquire) != RankState::left)
        return true;
    leave();
    return false;
}

}  // namespace weft::internal
