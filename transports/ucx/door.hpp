// door.hpp: the exchange of the worker addresses of two ends, over an authenticated socket between their processes. The
// addresses are too long for a Blob.
#pragma once
#include <memory>
#include <vector>

#include "transports/tcp/tcp_connection.hpp"

namespace weft::internal::ucx {

// Thread-bound (transports/connection.hpp).
class Door {
  public:
    // `connection` is a socket to the other end, connected or not.
    Door(std::shared_ptr<tcp::TcpConnection> connection, const std::vector<std::byte>& own);
    // True: the peer's address is there, and the socket is closed. A failure is final.
    Result<bool> exchange();
    const std::vector<std::byte>& peer() const { return peer_; }
    void add_descriptors(Wakeups& wakeups) const;

  private:
    Result<bool> send();
    Result<bool> receive();

    std::shared_ptr<tcp::TcpConnection> connection_;  // null: done
    std::vector<std::byte> own_;                      // its size, then the address
    size_t sent_ = 0;
    uint32_t peer_bytes_ = 0;
    std::vector<std::byte> peer_;
    size_t received_ = 0;  // with the size
};

}  // namespace weft::internal::ucx
