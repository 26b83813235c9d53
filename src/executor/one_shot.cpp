#include "src/executor/one_shot.hpp"

namespace weft::internal {

void OneShot::start(const void* send, void* receive, const void* operand, uint64_t sequence) {
    begin_call(send, receive, operand, sequence);
    posted_ = false;
}

Progress OneShot::advance() try {
    for (bool moved = false;; moved = true) {
        const size_t length = plan_->tile_length(tile_);
        const bool in_payload = length <= inline_bytes;
        if (!posted_) {
            buffers_.copy_input(in_payload ? flags_.line(rank_, tile_).payload : flags_.slot(rank_, tile_),
                                begin_of(tile_), length, &flags_.stores());
            flags_.post_arrival(tile_);
            wait_for_all(tile_);
            posted_ = moved = true;
        }
        if (const Progress progress = poll(); progress != Progress::moved) return moved_or(progress, moved);
        reduce_whole(tile_, in_payload);
        posted_ = false;
        if (++tile_ == plan_->tiles) {
            flags_.end(plan_->tiles);
            return Progress::done;
        }
    }
} catch (const UserReductionFailed& failed) {
    return report_.fails(failed.status(rank_, sequence_, plan_->operation));
}

}  // namespace weft::internal
