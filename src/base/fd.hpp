// fd.hpp: owner of one file descriptor, and the only place where Weft opens descriptors. Each is close-on-exec and
// above 2: if the program has closed its standard streams, its output must not go into a socket of Weft's.
#pragma once
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <utility>

namespace weft::internal {

// The file that a number stands for. The kernel's anonymous files (eventfd, epoll, timerfd) share one inode. They
// differ from files, sockets and pipes, but not from each other.
struct FileIdentity {
    dev_t device = 0;
    ino_t inode = 0;
    static FileIdentity of(int number);
    // Whether the number still stands for this file. The program may have closed it, and opened a file of its own.
    // Reentrant.
    bool holds(int number) const;
};

class Fd {
  public:
    Fd() = default;
    // Takes ownership of a descriptor without a change.
    explicit Fd(int number);

    // On failure each returns an empty Fd and sets errno. If the process has no descriptor left, the call raises the
    // soft limit, unless WEFT_RAISE_NOFILE is 0, and retries once. Thread-safe.
    static Fd open(const std::string& name, int flags, mode_t mode = 0644);
    static Fd socket(int family, int type);
    // The next connection, without blocking. EAGAIN: none is pending, also if no descriptor is left.
    static Fd accept(int listener, sockaddr* peer = nullptr, socklen_t* bytes = nullptr);
    static Fd memory(const char* name, unsigned flags);
    static Fd event();
    static Fd epoll();
    static Fd timer();
    static Fd duplicate(int number);
    // Takes ownership of a descriptor from a message or a library.
    static Fd adopt(int number);
    // Makes room for the descriptors of a message: the kernel drops those for which there is none.
    static void make_room(int count);
    // The soft limit if it was raised since the last call, otherwise 0: the log reports it, which itself needs descriptors.
    static uint64_t take_raised_limit();

    Fd(Fd&& other) noexcept : number_(std::exchange(other.number_, -1)), identity_(other.identity_) {}
    Fd& operator=(Fd&& other) noexcept {
        Fd old(std::move(*this));
        number_ = std::exchange(other.number_, -1);
        identity_ = other.identity_;
        return *this;
    }
    // Does not close a file that reuses the number after the program closed ours.
    ~Fd() {
        if (number_ >= 0 && intact()) close(number_);
    }
    int number() const { return number_; }
    explicit operator bool() const { return number_ >= 0; }
    // Whether it is still ours. Check this before a call that would harm a file of the program's.
    bool intact() const { return number_ >= 0 && identity_.holds(number_); }
    FileIdentity identity() const { return identity_; }
    void reset() { *this = Fd(); }
    // Gives up ownership.
    int release() { return std::exchange(number_, -1); }

  private:
    int number_ = -1;
    FileIdentity identity_;
};

// Occupies the free ones of the numbers 0, 1 and 2 while a descriptor is made: by Fd, a driver or a resolver. Reads
// and writes on the occupied numbers fail, as if these were closed. Thread-safe.
class StandardNumbers {
  public:
    StandardNumbers();

  private:
    Fd held_[3];
};

// Signals an event descriptor; false if it is no longer ours. Reentrant.
bool ring_event(const Fd& event);
// Whether it was signalled since the last call.
bool drain_event(const Fd& event);

// For the end of a sentence: the reason why there was no descriptor, and the remedy. `error` is an errno value.
std::string no_descriptor_text(int error);
// Whether an errno value means that the number is no longer a descriptor of Weft's.
bool is_lost_descriptor(int error);
// The sentence about it, for weftInvalidUsage.
inline constexpr char lost_descriptor_text[] =
    "this process has closed a descriptor of Weft's; a program must close only what it has opened itself";

}  // namespace weft::internal
