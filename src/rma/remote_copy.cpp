#include "src/rma/remote_copy.hpp"

#include <algorithm>
#include <cstring>

namespace weft::internal {

namespace {

constexpr uint64_t staging_bytes = 1 << 20;
// While one piece is on its way, the next one is copied.
constexpr uint64_t staged_piece_bytes = 128 << 10;
// Other connections of the rank progress between two pieces.
constexpr uint64_t direct_piece_bytes = 16 << 20;

}  // namespace

void RemoteCopy::begin(const OneSidedCall& call, Sender& sender, RemoteMemory& window) {
    call_ = call;
    peer_ = &peers_[call.peer];
    peer_->sender = &sender;
    window_ = &window;
    own_ = memory_->find(call.data, call.bytes);
    posted_ = done_ = 0;
}

Status RemoteCopy::make_staging() {
    if (staging_.memory) return ok();
    staging_.bytes = std::make_unique<std::byte[]>(staging_bytes);
    auto made = memory_->transport()->register_memory(
        {.data = staging_.bytes.get(), .bytes = staging_bytes, .kind = RangeKind::slots});
    if (!made) return made.take_status();
    staging_.memory = std::move(*made);
    return ok();
}

Result<Progress> RemoteCopy::advance() {
    Sender& sender = *peer_->sender;
    if (!own_) WEFT_TRY(make_staging());
    auto through = sender.progress();
    if (!through) return through.take_status();
    // A get reads what this rank has put there before.
    if (!call_.is_put() && peer_->unconfirmed) {
        if (sender.transferred() < peer_->posted) return Progress::blocked;
        peer_->unconfirmed = false;
    }
    auto moved = post_some();
    if (!moved) return moved.take_status();
    through = sender.progress();
    if (!through) return through.take_status();
    const bool complete = call_.is_put() ? *through : sender.transferred() >= peer_->posted;
    if (complete && posted_ > done_) {
        this->complete();
        moved = true;
    }
    if (done_ == call_.bytes) {
        peer_ = nullptr;
        return Progress::done;
    }
    return *moved ? Progress::moved : Progress::blocked;
}

// True: something was posted.
Result<bool> RemoteCopy::post_some() {
    bool any = false;
    for (;;) {
        const uint64_t left = call_.bytes - posted_;
        const uint64_t bytes = own_ ? std::min(left, direct_piece_bytes)
                                    : std::min({left, staged_piece_bytes, staging_bytes - (posted_ - done_)});
        if (bytes == 0) return any;
        auto posted = post(bytes);
        if (!posted) return posted;
        if (!*posted) return any;
        any = true;
    }
}

Result<bool> RemoteCopy::post(uint64_t bytes) {
    std::byte* const user = call_.data + posted_;
    std::byte* const own = own_ ? user : staging_.bytes.get() + (posted_ - done_);
    const RegisteredMemory* const memory = own_ ? own_ : staging_.memory.get();
    if (!own_ && call_.is_put()) memcpy(own, user, bytes);
    Sender& sender = *peer_->sender;
    auto posted = call_.is_put() ? sender.put(own, memory, *window_, call_.offset + posted_, bytes)
                                 : sender.get(own, memory, *window_, call_.offset + posted_, bytes);
    if (!posted || !*posted) return posted;
    ++peer_->posted;
    peer_->unconfirmed |= call_.is_put();
    posted_ += bytes;
    return true;
}

void RemoteCopy::complete() {
    if (!own_ && !call_.is_put()) memcpy(call_.data + done_, staging_.bytes.get(), posted_ - done_);
    done_ = posted_;
}

}  // namespace weft::internal
