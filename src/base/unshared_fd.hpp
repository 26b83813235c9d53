// unshared_fd.hpp: owner of a descriptor that a child after fork does not keep. There what it stands for would live as
// long as the child: a socket at which nobody answers, a device's memory.
#pragma once
#include <atomic>
#include <cstdint>
#include <utility>

#include "src/base/fd.hpp"

namespace weft::internal {

// In the child it is closed as soon as that is forked, and its owner gives nothing back.
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
