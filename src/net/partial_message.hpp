// partial_message.hpp: one message of the handshake, sent or received piece by piece.
#pragma once
#include <cstddef>

#include "src/base/result.hpp"

namespace weft::internal::net {

// A value, thread-bound.
class PartialMessage {
  public:
    static constexpr size_t bytes_most = 512;
    void put(const void* message, size_t bytes);
    Result<bool> write(int socket);               // true: all of it was sent
    Result<bool> read(int socket, size_t bytes);  // true: `bytes` have come since the last clear()
    void clear() { done_ = bytes_ = 0; }
    size_t done() const { return done_; }
    const std::byte* data() const { return data_; }

  private:
    std::byte data_[bytes_most];
    size_t done_ = 0;
    size_t bytes_ = 0;
};

}  // namespace weft::internal::net
