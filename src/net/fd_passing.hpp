// fd_passing.hpp: file descriptors for other processes of this user and network namespace. Whoever has some posts
// them as a set; whoever was told address and number fetches it over a socket without a name in the file system. A
// thread of the process's hands sets out while somebody holds the server. A child after fork keeps neither sockets nor
// sets, nor what is being fetched.
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

// Travels between processes, through what no stranger reads: who knows it may fetch.
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
    // Its number; it may be fetched any number of times until it is withdrawn, which closes the descriptors.
    uint64_t post(PassedFds fds);
    void withdraw(uint64_t number);

  private:
    struct Client;
    void serve();
    bool serve_client(Client& client) const;
    std::shared_ptr<const PassedFds> find(uint64_t number) const;
    // One packet of a set, or of none, from its descriptor number `first` on. False: not now.
    static Result<bool> send_packet(int socket, const PassedFds* fds, size_t first);

    UnsharedFd listener_;
    Fd ending_;
    FdServerAddress address_;
    mutable std::mutex mutex_;
    std::map<uint64_t, std::shared_ptr<const PassedFds>> passed_;
    uint64_t posted_ = 0;
    OwnedThread thread_;
};

// A set of another process's, or this one's. Fails when that process has ended, is not reached (of another network
// namespace), has withdrawn the set, or has not answered by the deadline (now_us()).
Result<PassedFds> fetch_fds(const FdServerAddress& from, uint64_t number, int64_t deadline_us);

}  // namespace weft::internal
