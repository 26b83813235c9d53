// wire.cpp: messages between the engines of processes, through Unix sockets. The address of an engine is its slot, the
// upper bits of the numbers of its queue pairs.
#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "tests/verbs/fake/fake.hpp"

namespace weft::internal::test::fake_ibverbs {

namespace {

constexpr int slots = 1'024;
constexpr size_t read_bytes = 1 << 18;

// Also names the world: processes of other worlds are other networks.
socklen_t address_of(int slot, sockaddr_un& address) {
    const char* world = std::getenv("FAKE_IBVERBS_WORLD");
    address = {};
    address.sun_family = AF_UNIX;
    const int length = std::snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "weft-fake-ibverbs-%s-%d",
                                     world ? world : "", slot);
    return socklen_t(offsetof(sockaddr_un, sun_path) + 1 + size_t(length));
}

}  // namespace

Wire::Wire() {
    bell_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    // Slots in a random order: a new process rarely has the numbers of one that has just died.
    const int first = int((uint64_t(getpid()) * 7'919 + uint64_t(now_us())) % slots);
    for (int i = 0; i < slots; ++i) {
        const int slot = (first + i) % slots;
        listener_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        sockaddr_un address;
        const socklen_t bytes = address_of(slot, address);
        if (bind(listener_, reinterpret_cast<sockaddr*>(&address), bytes) == 0 && listen(listener_, 128) == 0) {
            slot_ = slot;
            return;
        }
        close(listener_);
    }
    misuse("no slot is free");
}

Wire::~Wire() {
    for (auto& link : links_)
        if (link.second.fd >= 0) close(link.second.fd);
    for (const Inbound& inbound : inbound_) close(inbound.fd);
    close(listener_);
    close(bell_);
}

void Wire::send(const Message& message) {
    Link& link = links_[slot_of(message.header.target)];
    if (link.fd < 0) {
        link.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        sockaddr_un address;
        const socklen_t bytes = address_of(slot_of(message.header.target), address);
        if (connect(link.fd, reinterpret_cast<sockaddr*>(&address), bytes) != 0) {
            // No such process, or it is busy: the message is lost.
            close(std::exchange(link.fd, -1));
            return;
        }
    }
    std::vector<std::byte> bytes(sizeof message.header + message.header.bytes);
    memcpy(bytes.data(), &message.header, sizeof message.header);
    if (message.header.bytes > 0)
        memcpy(bytes.data() + sizeof message.header, message.payload->data(), message.header.bytes);
    link.out.push_back(std::move(bytes));
    flush(link);
}

void Wire::flush(Link& link) {
    while (!link.out.empty()) {
        const std::vector<std::byte>& bytes = link.out.front();
        const ssize_t written =
            ::send(link.fd, bytes.data() + link.begun, bytes.size() - link.begun, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (written < 0 && (errno == EAGAIN || errno == EINTR)) return;
        if (written < 0) {
            close(std::exchange(link.fd, -1));
            link.out.clear();
            link.begun = 0;
            return;
        }
        link.begun += size_t(written);
        if (link.begun < bytes.size()) continue;
        link.out.pop_front();
        link.begun = 0;
    }
}

bool Wire::read(Inbound& inbound, std::deque<Message>& messages) {
    bool open = true;
    for (;;) {
        const size_t had = inbound.bytes.size();
        inbound.bytes.resize(had + read_bytes);
        const ssize_t got = recv(inbound.fd, inbound.bytes.data() + had, read_bytes, MSG_DONTWAIT);
        inbound.bytes.resize(had + size_t(std::max<ssize_t>(got, 0)));
        if (got > 0) continue;
        open = got < 0 && (errno == EAGAIN || errno == EINTR);
        break;
    }
    size_t place = 0;
    for (Header header; inbound.bytes.size() - place >= sizeof header;) {
        memcpy(&header, inbound.bytes.data() + place, sizeof header);
        if (inbound.bytes.size() - place < sizeof header + header.bytes) break;
        const auto* data = inbound.bytes.data() + place + sizeof header;
        messages.push_back({header, std::make_shared<const std::vector<std::byte>>(data, data + header.bytes)});
        place += sizeof header + header.bytes;
    }
    inbound.bytes.erase(inbound.bytes.begin(), inbound.bytes.begin() + ptrdiff_t(place));
    return open;
}

std::deque<Message> Wire::receive() {
    for (auto& link : links_)
        if (link.second.fd >= 0) flush(link.second);
    for (int fd; (fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0;)
        inbound_.push_back({fd, {}});
    std::deque<Message> messages;
    for (size_t i = 0; i < inbound_.size();) {
        if (read(inbound_[i], messages)) {
            ++i;
            continue;
        }
        close(inbound_[i].fd);
        inbound_.erase(inbound_.begin() + ptrdiff_t(i));
    }
    return messages;
}

void Wire::sleep(int64_t us) {
    std::vector<pollfd> all{{bell_, POLLIN, 0}, {listener_, POLLIN, 0}};
    for (const Inbound& inbound : inbound_) all.push_back({inbound.fd, POLLIN, 0});
    for (const auto& link : links_)
        if (link.second.fd >= 0 && !link.second.out.empty()) all.push_back({link.second.fd, POLLOUT, 0});
    const timespec time{us / 1'000'000, us % 1'000'000 * 1'000};
    ppoll(all.data(), all.size(), &time, nullptr);
    eventfd_t count;
    (void)!eventfd_read(bell_, &count);
}

void Wire::wake() { eventfd_write(bell_, 1); }

}  // namespace weft::internal::test::fake_ibverbs
