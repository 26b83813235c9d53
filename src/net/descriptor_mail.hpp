// descriptor_mail.hpp: file descriptors for other processes of this user and network namespace. Whoever has some posts
// them as a letter; whoever was told address and number fetches it over a socket without a name in the file system. A
// thread of the process's hands letters out while somebody holds its mail. A child after fork keeps neither sockets nor
// letters, nor what is being fetched.
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
struct MailAddress {
    uint64_t name[2];  // of the socket
    uint64_t secret[2];
};

struct MailedDescriptors {
    std::vector<std::byte> text;  // at most mailed_text_max bytes
    std::vector<UnsharedFd> descriptors;
};
constexpr size_t mailed_text_max = 32 << 10;

// Thread-safe.
class DescriptorMail {
  public:
    // The process's.
    static Result<std::shared_ptr<DescriptorMail>> of_process();
    DescriptorMail(UnsharedFd listener, Fd ending, const MailAddress& address);
    DescriptorMail(const DescriptorMail&) = delete;
    ~DescriptorMail();

    const MailAddress& address() const { return address_; }
    // Its number; it may be fetched any number of times until it is withdrawn, which closes the descriptors.
    uint64_t post(MailedDescriptors letter);
    void withdraw(uint64_t number);

  private:
    struct Visitor;
    void serve();
    bool attend(Visitor& visitor) const;
    std::shared_ptr<const MailedDescriptors> find(uint64_t number) const;
    // One packet of a letter, or of none, from its descriptor number `first` on. False: not now.
    static Result<bool> send_packet(int socket, const MailedDescriptors* letter, size_t first);

    UnsharedFd listener_;
    Fd ending_;
    MailAddress address_;
    mutable std::mutex mutex_;
    std::map<uint64_t, std::shared_ptr<const MailedDescriptors>> letters_;
    uint64_t posted_ = 0;
    OwnedThread thread_;
};

// A letter of another process's, or this one's. Fails when that process has ended, is not reached (of another network
// namespace), has withdrawn the letter, or has not answered by the deadline (now_us()).
Result<MailedDescriptors> fetch_descriptors(const MailAddress& from, uint64_t number, int64_t deadline_us);

}  // namespace weft::internal
