#include "src/net/fd_passing.hpp"

#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "src/base/clock.hpp"
#include "src/base/log.hpp"
#include "src/base/per_process.hpp"

namespace weft::internal {

namespace {

constexpr uint64_t fd_server_magic = 0x7765'6674'6d61'696c;
constexpr int64_t client_patience_us = 2'000'000;  // a client that takes longer is dropped
constexpr size_t descriptors_a_packet = 128;       // the kernel passes 253 at most
constexpr size_t clients_max = 64;                 // further clients wait in the listener's queue

struct FdRequest {
    uint64_t magic, secret[2], number;
};
// At the beginning of each packet; the text is behind the first one.
struct FdReply {
    uint64_t magic, known;  // 1: there is such a set
    uint64_t text_bytes, descriptors;
};

struct AbstractName {
    sockaddr_un address{};
    socklen_t bytes = 0;
};
AbstractName socket_name(const FdServerAddress& where) {
    AbstractName name;
    name.address.sun_family = AF_UNIX;
    // The leading zero makes the name abstract: it belongs to the network namespace and ends with the socket.
    const std::string text = fmt::format("weft-fd-passing-{:016x}{:016x}", where.name[0], where.name[1]);
    memcpy(name.address.sun_path + 1, text.data(), text.size());
    name.bytes = socklen_t(offsetof(sockaddr_un, sun_path) + 1 + text.size());
    return name;
}

bool is_own_user(int socket) {
    ucred peer{};
    socklen_t bytes = sizeof peer;
    return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 && peer.uid == geteuid();
}

bool would_block() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

Status await(int socket, short events, int64_t deadline_us) {
    for (;;) {
        const int64_t left_us = deadline_us - now_us();
        if (left_us <= 0) return fail(error::shm_descriptor_timeout, "the process that owns them does not answer");
        pollfd entry{socket, events, 0};
        if (poll(&entry, 1, int(std::min<int64_t>(left_us / 1000 + 1, 1000))) > 0) return ok();
    }
}

Result<UnsharedFd> connect_to(const FdServerAddress& to, int64_t deadline_us) {
    UnsharedFd socket(Fd::socket(AF_UNIX, SOCK_SEQPACKET));
    if (!socket) return fail(error::system_descriptors, "a socket could not be made: {}", no_descriptor_text(errno));
    const AbstractName name = socket_name(to);
    while (connect(socket.number(), reinterpret_cast<const sockaddr*>(&name.address), name.bytes) != 0) {
        if (errno == ECONNREFUSED)
            return fail(error::shm_descriptor,
                        "the process that owns them has ended, or is in another network namespace "
                        "(containers need a common one)");
        // Its queue is full.
        if (!would_block())
            return fail(error::system_call, "the process that owns them cannot be reached: {}", errno_text(errno));
        if (now_us() > deadline_us)
            return fail(error::shm_descriptor_timeout, "the process that owns them does not answer");
        usleep(1000);
    }
    if (!is_own_user(socket.number()))
        return fail(error::shm_descriptor, "the process that answers belongs to another user");
    return socket;
}

// The next packet of a set.
Status receive_packet(int socket, FdReply& reply, PassedFds& fds, int64_t deadline_us) {
    std::vector<std::byte> text(fds.descriptors.empty() ? passed_text_max : 0);
    alignas(cmsghdr) char control[CMSG_SPACE(descriptors_a_packet * sizeof(int))];
    iovec parts[2] = {{&reply, sizeof reply}, {text.data(), text.size()}};
    msghdr header{};
    header.msg_iov = parts;
    header.msg_iovlen = 2;
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    ssize_t received = -1;
    do {
        WEFT_TRY(await(socket, POLLIN, deadline_us));
        if (recv(socket, &reply, sizeof reply, MSG_PEEK | MSG_DONTWAIT) == ssize_t(sizeof reply) &&
            reply.descriptors > fds.descriptors.size())
            Fd::make_room(int(std::min<uint64_t>(descriptors_a_packet, reply.descriptors - fds.descriptors.size())));
        received = recvmsg(socket, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    } while (received < 0 && would_block());
    if (received < 0) return fail(error::shm_descriptor, "they could not be received: {}", errno_text(errno));
    for (cmsghdr* item = CMSG_FIRSTHDR(&header); item; item = CMSG_NXTHDR(&header, item))
        if (item->cmsg_level == SOL_SOCKET && item->cmsg_type == SCM_RIGHTS)
            for (size_t at = 0; at + sizeof(int) <= item->cmsg_len - CMSG_LEN(0); at += sizeof(int)) {
                int number;
                memcpy(&number, CMSG_DATA(item) + at, sizeof number);
                fds.descriptors.emplace_back(Fd::adopt(number));
            }
    if (header.msg_flags & MSG_CTRUNC)
        return fail(error::system_descriptors, "no file descriptor is left for them: {}", no_descriptor_text(EMFILE));
    if (received == 0) return fail(error::shm_descriptor, "the process that owns them closed the connection");
    if (size_t(received) < sizeof reply || (header.msg_flags & MSG_TRUNC) || reply.magic != fd_server_magic)
        return fail(error::shm_descriptor, "the process that owns them sent something else");
    const ptrdiff_t text_bytes = received - ptrdiff_t(sizeof reply);
    if (text_bytes > 0) fds.text.assign(text.begin(), text.begin() + text_bytes);
    return ok();
}

}  // namespace

struct FdServer::Client {
    UnsharedFd socket;
    int64_t until_us;
    std::shared_ptr<const PassedFds> fds = {};
    bool asked = false;
    size_t sent = 0;  // descriptors
};

Result<std::shared_ptr<FdServer>> FdServer::of_process() {
    return shared_by_process<FdServer>([]() -> Result<std::shared_ptr<FdServer>> {
        FdServerAddress address;
        if (getrandom(&address, sizeof address, 0) != ssize_t(sizeof address))
            return fail(error::system_call, "random numbers for the name of a socket could not be read: {}",
                        errno_text(errno));
        Fd listener = Fd::socket(AF_UNIX, SOCK_SEQPACKET);
        const AbstractName name = socket_name(address);
        if (!listener || bind(listener.number(), reinterpret_cast<const sockaddr*>(&name.address), name.bytes) != 0 ||
            listen(listener.number(), 128) != 0)
            return fail(error::system_descriptors, "a socket for file descriptors could not be made: {}",
                        no_descriptor_text(errno));
        Fd ending = Fd::event();
        if (!ending)
            return fail(error::system_descriptors, "an event descriptor could not be made: {}",
                        no_descriptor_text(errno));
        auto fd_server = std::make_shared<FdServer>(UnsharedFd(std::move(listener)), std::move(ending), address);
        auto thread = OwnedThread::start("weft-fd-passing", [fd_server = fd_server.get()] { fd_server->serve(); });
        if (!thread) return thread.take_status();
        fd_server->thread_ = std::move(*thread);
        return fd_server;
    });
}

FdServer::FdServer(UnsharedFd listener, Fd ending, const FdServerAddress& address)
    : listener_(std::move(listener)), ending_(std::move(ending)), address_(address) {}

FdServer::~FdServer() {
    if (!thread_.runs_here()) return;
    ring_event(ending_);
    thread_.end();
}

uint64_t FdServer::post(PassedFds fds) {
    auto posted = std::make_shared<const PassedFds>(std::move(fds));
    const std::lock_guard lock(mutex_);
    passed_[++posted_] = std::move(posted);
    return posted_;
}

void FdServer::withdraw(uint64_t number) {
    const std::lock_guard lock(mutex_);
    passed_.erase(number);
}

std::shared_ptr<const PassedFds> FdServer::find(uint64_t number) const {
    const std::lock_guard lock(mutex_);
    const auto place = passed_.find(number);
    return place == passed_.end() ? nullptr : place->second;
}

Result<bool> FdServer::send_packet(int socket, const PassedFds* fds, size_t first) {
    FdReply reply{fd_server_magic, fds != nullptr, 0, 0};
    if (fds != nullptr) reply.text_bytes = fds->text.size(), reply.descriptors = fds->descriptors.size();
    iovec parts[2] = {{&reply, sizeof reply}, {nullptr, 0}};
    if (fds != nullptr && first == 0) parts[1] = {const_cast<std::byte*>(fds->text.data()), fds->text.size()};
    msghdr header{};
    header.msg_iov = parts;
    header.msg_iovlen = 2;
    alignas(cmsghdr) char control[CMSG_SPACE(descriptors_a_packet * sizeof(int))] = {};
    const size_t count = fds == nullptr ? 0 : std::min(descriptors_a_packet, fds->descriptors.size() - first);
    if (count > 0) {
        header.msg_control = control;
        header.msg_controllen = CMSG_SPACE(count * sizeof(int));
        cmsghdr* const rights = CMSG_FIRSTHDR(&header);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(count * sizeof(int));
        for (size_t i = 0; i < count; ++i) {
            const int number = fds->descriptors[first + i].number();
            memcpy(CMSG_DATA(rights) + i * sizeof number, &number, sizeof number);
        }
    }
    if (sendmsg(socket, &header, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return true;
    if (would_block()) return false;
    // This user has as many descriptors in flight as the kernel allows: other processes must take theirs first.
    if (errno == ETOOMANYREFS) return usleep(1000), false;
    return fail(error::system_call, "{}", errno_text(errno));
}

// Does the work that is possible now. False: the client is done.
bool FdServer::serve_client(Client& client) const {
    const int socket = client.socket.number();
    if (!client.asked) {
        FdRequest request;
        const ssize_t received = recv(socket, &request, sizeof request, MSG_DONTWAIT);
        if (received < 0 && would_block()) return true;
        if (received != ssize_t(sizeof request) || request.magic != fd_server_magic ||
            request.secret[0] != address_.secret[0] || request.secret[1] != address_.secret[1])
            return false;
        client.asked = true;
        client.fds = find(request.number);
    }
    const size_t all = client.fds ? client.fds->descriptors.size() : 0;
    do {
        const auto sent = send_packet(socket, client.fds.get(), client.sent);
        if (sent && !*sent) return true;
        if (!sent) WEFT_LOG(info, mem, "cannot pass file descriptors: {}", sent.status().text());
        if (!sent) return false;
        client.sent += std::min(descriptors_a_packet, all - client.sent);
    } while (client.sent < all);
    return false;
}

// If memory runs out here, clients fail at their deadline.
void FdServer::serve() try {
    std::vector<Client> clients;
    std::vector<pollfd> entries;
    for (;;) {
        entries.assign(
            {{ending_.number(), POLLIN, 0}, {listener_.number(), short(clients.size() < clients_max ? POLLIN : 0), 0}});
        int64_t until_us = INT64_MAX;
        for (const Client& client : clients) {
            entries.push_back({client.socket.number(), short(client.asked ? POLLOUT : POLLIN), 0});
            until_us = std::min(until_us, client.until_us);
        }
        // At least once a second: poll() does not notice that a descriptor is closed meanwhile.
        const int64_t left_ms = std::clamp<int64_t>((until_us - now_us()) / 1000 + 1, 0, 1000);
        if (poll(entries.data(), nfds_t(entries.size()), int(left_ms)) < 0 && errno != EINTR) return;
        if (entries[0].revents != 0) return;
        const int64_t now = now_us();
        for (size_t i = clients.size(); i-- > 0;) {
            const bool over = entries[2 + i].revents != 0 && !serve_client(clients[i]);
            if (over || now > clients[i].until_us) clients.erase(clients.begin() + ptrdiff_t(i));
        }
        if (entries[1].revents == 0) continue;
        Fd socket = Fd::accept(listener_.number());
        if (!socket && !would_block()) usleep(10'000);  // no descriptor is left, for the moment
        if (socket && is_own_user(socket.number()))
            clients.push_back({UnsharedFd(std::move(socket)), now + client_patience_us});
    }
} catch (const std::exception& exception) {
    WEFT_LOG(warn, mem, "no file descriptors are passed any more: {}", exception.what());
}

Result<PassedFds> fetch_fds(const FdServerAddress& from, uint64_t number, int64_t deadline_us) {
    const auto because = [](const Status& why) {
        return fail(why, "file descriptors could not be fetched: {}", why.sentence());
    };
    auto socket = connect_to(from, deadline_us);
    if (!socket) return because(socket.status());
    const FdRequest request{fd_server_magic, {from.secret[0], from.secret[1]}, number};
    if (send(socket->number(), &request, sizeof request, MSG_DONTWAIT | MSG_NOSIGNAL) != ssize_t(sizeof request))
        return because(
            fail(error::shm_descriptor, "the process that owns them cannot be asked: {}", errno_text(errno)));
    PassedFds fds;
    FdReply reply{};
    do {
        if (const Status received = receive_packet(socket->number(), reply, fds, deadline_us); !received)
            return because(received);
        if (reply.known == 0)
            return because(fail(error::shm_withdrawn, "the process that owned them has withdrawn them"));
    } while (fds.descriptors.size() < reply.descriptors);
    return fds;
}

}  // namespace weft::internal
