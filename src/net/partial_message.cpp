#include "src/net/partial_message.hpp"

#include <cassert>
#include <cstring>

#include "src/net/socket.hpp"

namespace weft::internal::net {

void PartialMessage::put(const void* message, size_t bytes) {
    assert(bytes <= sizeof data_);
    memcpy(data_, message, bytes);
    bytes_ = bytes;
    done_ = 0;
}

Result<bool> PartialMessage::write(int socket) {
    auto written = write_some(socket, data_ + done_, bytes_ - done_);
    if (!written) return written.take_status();
    done_ += *written;
    return done_ == bytes_;
}

Result<bool> PartialMessage::read(int socket, size_t bytes) {
    assert(bytes <= sizeof data_);
    if (done_ < bytes) {
        auto got = read_some(socket, data_ + done_, bytes - done_);
        if (!got) return got.take_status();
        done_ += *got;
    }
    return done_ >= bytes;
}

}  // namespace weft::internal::net
