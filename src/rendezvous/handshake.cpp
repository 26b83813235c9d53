#include "src/rendezvous/handshake.hpp"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>

namespace weft::internal {

static constexpr size_t passed_most = 2;

Result<bool> send_message(int socket, const HandshakeMessage& message, std::span<const int> passed) {
    iovec part{const_cast<HandshakeMessage*>(&message), sizeof message};
    alignas(cmsghdr) char control[CMSG_SPACE(passed_most * sizeof(int))] = {};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    if (!passed.empty()) {
        header.msg_control = control;
        header.msg_controllen = CMSG_SPACE(passed.size_bytes());
        cmsghdr* rights = CMSG_FIRSTHDR(&header);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(passed.size_bytes());
        memcpy(CMSG_DATA(rights), passed.data(), passed.size_bytes());
    }
    const ssize_t sent = sendmsg(socket, &header, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent == ssize_t(sizeof message)) return true;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return false;
    if (sent < 0 && (errno == EPIPE || errno == ECONNRESET))
        return fail(error::init_rank_died, "a process of this host closed its connection: {}", errno_text(errno));
    if (sent < 0 && is_lost_descriptor(errno)) return fail(error::usage_closed_descriptor, "{}", lost_descriptor_text);
    return fail(error::system_call, "a message to a process of this host could not be sent: {}", errno_text(errno));
}

Result<std::optional<HandshakeMessage>> receive_message(int socket, std::vector<Fd>* passed) {
    HandshakeMessage message;
    iovec part{&message, sizeof message};
    alignas(cmsghdr) char control[CMSG_SPACE(passed_most * sizeof(int))];
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    if (passed && recv(socket, &message, sizeof message, MSG_PEEK | MSG_DONTWAIT) == ssize_t(sizeof message) &&
        message.kind == HandshakeMessage::welcome)
        Fd::make_room(int(passed_most));
    const ssize_t received = recvmsg(socket, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (received < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        return std::optional<HandshakeMessage>();
    if (received < 0 && is_lost_descriptor(errno))
        return fail(error::usage_closed_descriptor, "{}", lost_descriptor_text);
    if (received < 0)
        return fail(error::init_rank_died, "a process of this host closed its connection: {}", errno_text(errno));
    std::vector<Fd> fds;
    for (cmsghdr* item = CMSG_FIRSTHDR(&header); item; item = CMSG_NXTHDR(&header, item))
        if (item->cmsg_level == SOL_SOCKET && item->cmsg_type == SCM_RIGHTS)
            for (size_t at = 0; at + sizeof(int) <= item->cmsg_len - CMSG_LEN(0); at += sizeof(int)) {
                int number;
                memcpy(&number, CMSG_DATA(item) + at, sizeof number);
                fds.push_back(Fd::adopt(number));
            }
    if (header.msg_flags & MSG_CTRUNC)
        return fail(error::system_descriptors, "the shared segment of another process could not be received: {}",
                    no_descriptor_text(EMFILE));
    if (received == 0) return fail(error::init_rank_died, "a process of this host closed its connection");
    if (received != ssize_t(sizeof message) || (header.msg_flags & MSG_TRUNC) ||
        message.magic != HandshakeMessage::expected_magic)
        return fail(error::tcp_stranger, "a process of this host sent something that is not Weft's handshake");
    message.sentence[sizeof message.sentence - 1] = 0;
    if (passed) *passed = std::move(fds);
    return std::optional<HandshakeMessage>(message);
}

static Digest mac(const UniqueId& id, const char (&role)[6], const Digest& first, const Digest& second) {
    unsigned char text[sizeof role + sizeof first + sizeof second];
    memcpy(text, role, sizeof role);
    memcpy(text + sizeof role, first.data(), first.size());
    memcpy(text + sizeof role + first.size(), second.data(), second.size());
    return id.prove(text, sizeof text);
}

Digest challenge_mac(const UniqueId& id, const Digest& client_nonce, const Digest& server_nonce) {
    return mac(id, "hosts", client_nonce, server_nonce);
}
Digest proof_mac(const UniqueId& id, const Digest& client_nonce, const Digest& server_nonce) {
    return mac(id, "guest", client_nonce, server_nonce);
}

}  // namespace weft::internal
