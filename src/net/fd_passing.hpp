// fd_passing.hpp: passes file descriptors to other processes of this user and network namespace. A process posts a set;
// a process that knows address and number fetches it over an abstract Unix socket. A thread of the process serves the
// sets while the server has an owner. A child after fork keeps neither sockets nor sets, nor a set that is being
// fetched.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "src/base/fd.hpp"
#include "src/base/result.hpp"
#include "src/base/thread.hpp"
#include "src/base/unshared_fd.hpp"

namespace weft::internal {

// A process that knows it may fetch, so it is sent only through memory and connections of the communicator.
struct FdServerAddress {
    uint64_t name[2];  // of the socket
    uint64_t secret[2];
};

struct PassedFds {
    std::vector<std::byte> text;  // at most passed_text_max bytes
    std::vector<UnsharedFd> descriptors;
};
constexpr size_t passed_text_max = 32 << 10;

// Thread-safe.
class FdServer {
  public:
    // The process's.
    static Result<std::shared_ptr<FdServer>> of_process();
    FdServer(UnsharedFd listener, Fd ending, const FdServerAddress& address);
    FdServer(const FdServer&) = delete;
    ~FdServer();

    const FdServerAddress& address() const { return address_; }
    // Returns the set's number. It may be fetched any number of times until withdraw(), which closes the descriptors.
    uint64_t post(PassedFds fds);
    void withdraw(uint64_t number);

  private:
    struct Client;
    void serve();
    bool serve_client(Client& client) const;
    std::shared_ptr<const PassedFds> find(uint64_t number) const;
    // Sends one packet of a set, or of none, from its descriptor `first` on. False: the socket would block.
    static Result<bool> send_packet(int socket, const PassedFds* fds, size_t first);

    UnsharedFd listener_;
    Fd ending_;
    FdServerAddress address_;
    mutable std::mutex mutex_;
    std::map<uint64_t, std::shared_ptr<const PassedFds>> passed_;
    uint64_t posted_ = 0;
    OwnedThread thread_;
};

// A set of another process, or of this one. Fails if that process has ended, is in another network namespace, has
// withdrawn the set, or has not answered by the deadline (in now_us() time).
Result<PassedFds> fetch_fds(const FdServerAddress& from, uint64_t number, int64_t deadline_us);

}  // namespace weft::internal
