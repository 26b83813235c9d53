#include "src/net/descriptors.hpp"

#include <sys/socket.h>

#include <cassert>
#include <cerrno>
#include <cstring>

#include "src/net/socket.hpp"

namespace weft::internal::net {

static bool would_block(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

Result<bool> send_descriptors(int socket, std::span<const int> descriptors) {
    assert(!descriptors.empty() && descriptors.size() <= passed_descriptors_most);
    std::byte mark{};
    iovec part{&mark, sizeof mark};
    alignas(cmsghdr) char control[CMSG_SPACE(passed_descriptors_most * sizeof(int))] = {};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* const rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    memcpy(CMSG_DATA(rights), descriptors.data(), descriptors.size_bytes());
    if (sendmsg(socket, &header, MSG_DONTWAIT | MSG_NOSIGNAL) == 1) return true;
    if (would_block(errno)) return false;
    return broken_connection(errno);
}

Result<std::optional<std::vector<Fd>>> receive_descriptors(int socket) {
    std::byte mark{};
    iovec part{&mark, sizeof mark};
    alignas(cmsghdr) char control[CMSG_SPACE(passed_descriptors_most * sizeof(int))];
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    Fd::make_room(int(passed_descriptors_most));
    const ssize_t received = recvmsg(socket, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (received < 0 && would_block(errno)) return std::optional<std::vector<Fd>>();
    if (received < 0) return broken_connection(errno);
    std::vector<Fd> passed;
    for (cmsghdr* item = CMSG_FIRSTHDR(&header); item; item = CMSG_NXTHDR(&header, item))
        if (item->cmsg_level == SOL_SOCKET && item->cmsg_type == SCM_RIGHTS)
            for (size_t at = 0; at + sizeof(int) <= item->cmsg_len - CMSG_LEN(0); at += sizeof(int)) {
                int number;
                memcpy(&number, CMSG_DATA(item) + at, sizeof number);
                passed.push_back(Fd::adopt(number));
            }
    if (header.msg_flags & MSG_CTRUNC)
        return fail(error::system_descriptors, "descriptors of another process could not be received: {}",
                    no_descriptor_text(EMFILE));
    if (received == 0) return fail(error::tcp_broken, "the connection was closed");
    return std::optional(std::move(passed));
}

}  // namespace weft::internal::net
