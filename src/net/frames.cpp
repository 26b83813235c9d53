#include "src/net/frames.hpp"

#include <algorithm>
#include <cstring>

#include "src/net/socket.hpp"

namespace weft::internal::net {

FrameStream::FrameStream(Fd socket) : socket_(std::move(socket)), peer_(peer_address(socket_.number())) {}

Status FrameStream::broken(std::string& failure, const std::string& how) const {
    if (failure.empty()) failure = fmt::format("{}: {}", peer_.text(), how);
    return fail(error::tcp_broken, "{}", failure);
}

Status FrameStream::queue(uint32_t kind, const void* bytes, size_t count) {
    if (count > frame_bytes_max)
        return fail(error::internal_state, "a frame has {} bytes, and {} are the most", count, frame_bytes_max);
    if (!send_failure_.empty()) return broken(send_failure_, "");
    if (queued_bytes() + count > queue_bytes_max)
        return broken(send_failure_,
                      fmt::format("it does not read: {} MiB that were sent to it wait already", queued_bytes() >> 20));
    const Header header{.kind = kind, .bytes = count};
    const auto* head = reinterpret_cast<const std::byte*>(&header);
    const auto* body = static_cast<const std::byte*>(bytes);
    if (sent_ == outgoing_.size()) {
        outgoing_.clear();
        sent_ = 0;
    }
    outgoing_.insert(outgoing_.end(), head, head + sizeof header);
    outgoing_.insert(outgoing_.end(), body, body + count);
    return ok();
}

Result<bool> FrameStream::flush() {
    while (sent_ < outgoing_.size()) {
        if (!send_failure_.empty()) return broken(send_failure_, "");
        auto written = write_some(socket_.number(), outgoing_.data() + sent_, outgoing_.size() - sent_);
        if (!written) return broken(send_failure_, written.status().sentence());
        if (*written == 0) return false;
        sent_ += *written;
    }
    return true;
}

// True: `frame` is the next one.
Result<bool> FrameStream::next(Frame& frame) {
    Header header;
    if (end_ - begin_ < sizeof header) return false;
    memcpy(&header, incoming_.data() + begin_, sizeof header);
    if (header.magic != Header::expected_magic || header.bytes > frame_bytes_max)
        return broken(receive_failure_, "the data that came is no frame of Weft");
    if (end_ - begin_ < sizeof header + header.bytes) return false;
    const std::byte* body = incoming_.data() + begin_ + sizeof header;
    frame.kind = header.kind;
    frame.bytes.assign(body, body + header.bytes);
    begin_ += sizeof header + header.bytes;
    if (begin_ == end_) begin_ = end_ = 0;
    return true;
}

Result<std::optional<Frame>> FrameStream::receive() {
    constexpr size_t read_bytes = 16384;  // at a time, at least
    Frame frame;
    for (;;) {
        auto whole = next(frame);
        if (!whole) return whole.take_status();
        if (*whole) return std::optional(std::move(frame));
        if (!receive_failure_.empty()) return broken(receive_failure_, "");
        if (begin_ > 0) {
            std::copy(incoming_.begin() + ptrdiff_t(begin_), incoming_.begin() + ptrdiff_t(end_), incoming_.begin());
            end_ -= begin_;
            begin_ = 0;
        }
        // Memory grows with the data that has come, not with the size that a header claims.
        if (incoming_.size() - end_ < read_bytes) incoming_.resize(std::max(2 * incoming_.size(), end_ + read_bytes));
        bool closed = false;
        auto got = read_some(socket_.number(), incoming_.data() + end_, incoming_.size() - end_, &closed);
        if (!got) {
            ended_ = closed && end_ == 0;
            return broken(receive_failure_,
                          end_ == 0 ? got.status().sentence() : got.status().sentence() + ", in the middle of a frame");
        }
        if (*got == 0) return std::optional<Frame>();
        end_ += *got;
    }
}

}  // namespace weft::internal::net
