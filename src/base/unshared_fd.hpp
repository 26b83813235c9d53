// unshared_fd.hpp: owner of a descriptor that a child after fork does not keep. Otherwise its file would live as long
// as the child: a listening socket without a server, or a device's memory.
#pragma once
#include <atomic>
#include <cstdint>
#include <utility>

#include "src/base/fd.hpp"

namespace weft::internal {

// The child closes the descriptor right after fork, and the owner there releases nothing.
class UnsharedFd {
  public:
    UnsharedFd() = default;
    explicit UnsharedFd(Fd fd);
    UnsharedFd(UnsharedFd&& other) noexcept { *this = std::move(other); }
    UnsharedFd& operator=(UnsharedFd&& other) noexcept;
    ~UnsharedFd();

    int number() const { return fd_.number(); }
    explicit operator bool() const { return bool(fd_); }

  private:
    Fd fd_;
    std::atomic<int>* place_ = nullptr;  // where the child finds it
    uint64_t process_ = 0;
};

}  // namespace weft::internal
