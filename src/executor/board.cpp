// board.cpp: posting and awaiting the words of the board (src/README.md, "The board").
#include "src/base/cpu.hpp"
#include "src/executor/run.hpp"

namespace weft::internal {

void Run::post_entry(uint64_t tile) {
    const uint32_t number = board_tile(tile);
    plan_->board->line(rank_, number)
        .entry.store(entry_word(number, plan_->operation_fingerprint), std::memory_order_release);  // pairs with poll()
    plan_->board->wake();
    // Its readers still hold the line that is next: of a small operation, to take it from them is a fifth of the time, which
    // passes meanwhile.
    if (fits_line_) prefetch_to_write(&plan_->board->line(rank_, number + 1));
}

void Run::post_done(uint64_t tile) {
    const uint32_t number = board_tile(tile);
    plan_->board->line(rank_, number)
        .done.store(entry_word(number, plan_->operation_fingerprint), std::memory_order_release);  // pairs with poll()
    plan_->board->wake();
}

void Run::arm(uint64_t entry_tile, uint64_t done_tile) {
    wait_entry_ = entry_tile;
    wait_done_ = done_tile;
    waiting_.fill(ranks_, rank_);
}

// Looks at everybody who is missing, not at one after the other: waiting for the set costs one switch, not one each.
Progress Run::poll(RankSet& waiting, uint64_t entry_tile, uint64_t done_tile) {
    bool blocked = false;
    const auto look = [&](const std::atomic<uint64_t>& word, uint64_t tile, int place, int32_t furthest) {
        const uint64_t expected = entry_word(board_tile(tile), plan_->operation_fingerprint);
        const uint64_t seen = word.load(std::memory_order_acquire);  // pairs with post_entry(), post_done()
        if (seen == expected) return true;
        // Zero is a line never written, an older tile one not written yet; this tile or a later one is another
        // operation's. Tiles without a second phase post no done, so a done word may be so old that it looks like a
        // later one: there only this tile counts.
        const int32_t ahead = int32_t(uint32_t(seen >> 32) - uint32_t(expected >> 32));
        if (seen != 0 && ahead >= 0 && ahead <= furthest) suspect_ = plan_->schedule->board[size_t(place)];
        return false;
    };
    waiting.for_each([&](int place) {
        const bool entered = entry_tile == no_tile || look(line(place, entry_tile).entry, entry_tile, place, INT32_MAX);
        if (entered && (done_tile == no_tile || look(line(place, done_tile).done, done_tile, place, 0)))
            waiting.erase(place);
        else
            blocked = true;
    });
    if (suspect_ >= 0) [[unlikely]]
        return Progress::mismatch;
    return blocked ? Progress::blocked : Progress::moved;
}

}  // namespace weft::internal
