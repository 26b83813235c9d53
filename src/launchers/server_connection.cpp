#include "src/launchers/server_connection.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <thread>

#include "src/net/resolution.hpp"

namespace weft::internal {

namespace {

constexpr int name_pause_ms = 200;  // between two lookups of a name without an address

// Of any family: WEFT_SOCKET_FAMILY does not concern the launcher's server.
Result<std::vector<net::Address>> resolve_by(const std::string& server, const std::string& host, uint16_t port,
                                             Deadline deadline) {
    while (true) {
        auto found = net::look_up(host, port, AF_UNSPEC).take(deadline.remaining_ms());
        if (!found)
            return fail(error::launcher_name_lookup,
                        "{}: the name {} had no address within {} ms: it is still being looked up", server, host,
                        deadline.all_ms());
        if (*found) return std::move(**found);
        const std::string& reason = found->status().sentence();
        if (found->status().id() != error::tcp_unknown_host) return fail(found->status(), "{}: {}", server, reason);
        if (deadline.passed())
            return fail(error::launcher_name_lookup, "{}: the name {} had no address within {} ms: {}", server, host,
                        deadline.all_ms(), reason);
        const int left_ms = deadline.remaining_ms();
        std::this_thread::sleep_for(
            std::chrono::milliseconds(left_ms < 0 ? name_pause_ms : std::min(left_ms, name_pause_ms)));
    }
}

// errno's value; 0 when connected.
int connect_one(const net::Address& address, const Fd& socket, Deadline deadline) {
    if (connect(socket.number(), address.raw(), address.raw_bytes()) == 0) return 0;
    if (errno != EINPROGRESS && errno != EINTR) return errno;
    pollfd writable{socket.number(), POLLOUT, 0};
    int ready = 0;
    while ((ready = poll(&writable, 1, deadline.remaining_ms())) < 0 && errno == EINTR) {
    }
    if (ready <= 0) return ready == 0 ? ETIMEDOUT : errno;
    int error = 0;
    socklen_t size = sizeof error;
    getsockopt(socket.number(), SOL_SOCKET, SO_ERROR, &error, &size);
    return error;
}

}  // namespace

std::string shown(std::string_view text, size_t most) {
    std::string line;
    for (const char letter : text.substr(0, most)) line += letter >= ' ' && letter <= '~' ? letter : '.';
    return text.size() > most ? line + "..." : line;
}

ServerConnection::ServerConnection(std::string server, Fd socket, Deadline deadline)
    : server_(std::move(server)), owned_(std::move(socket)), descriptor_(owned_.number()), deadline_(deadline) {}

ServerConnection::ServerConnection(std::string server, int descriptor, Deadline deadline)
    : server_(std::move(server)), descriptor_(descriptor), deadline_(deadline) {}

Result<std::optional<ServerConnection>> ServerConnection::connect(std::string server, const std::string& host,
                                                                  uint16_t port, Deadline deadline) {
    server += fmt::format(" at {}:{}", host, port);
    auto addresses = resolve_by(server, host, port, deadline);
    if (!addresses) return addresses.take_status();
    int error = 0;
    bool all_refused = true;
    for (const net::Address& address : *addresses) {
        Fd socket = Fd::socket(address.family(), SOCK_STREAM);
        error = socket ? connect_one(address, socket, deadline) : errno;
        if (error == 0) {
            ServerConnection connection(std::move(server), std::move(socket), deadline);
            connection.peer_ = address;
            return std::optional<ServerConnection>(std::move(connection));
        }
        // An address of a family that this host does not have counts as refused.
        all_refused = all_refused && (error == ECONNREFUSED || error == EAFNOSUPPORT || error == EADDRNOTAVAIL);
    }
    if (all_refused) return std::optional<ServerConnection>();
    return fail(error == ETIMEDOUT ? error::launcher_timeout : error::launcher_unreachable, "{} cannot be reached: {}",
                server, no_descriptor_text(error));
}

Status ServerConnection::wait(short events, const std::string& what) {
    pollfd ready{descriptor_, events, 0};
    while (true) {
        const int count = poll(&ready, 1, deadline_.remaining_ms());
        if (count > 0) return ok();
        if (count == 0)
            return fail(error::launcher_timeout, "{}: waited {} ms for {}", server_, deadline_.all_ms(), what);
        if (errno != EINTR) return fail(error::system_call, "{}: poll: {}", server_, errno_text(errno));
    }
}

Status ServerConnection::send(std::string_view bytes) {
    while (!bytes.empty()) {
        const ssize_t count = ::send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
        if (count >= 0) {
            bytes.remove_prefix(size_t(count));
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            WEFT_TRY(wait(POLLOUT, "room to send a request"));
        } else if (errno != EINTR) {
            return fail(error::launcher_lost, "{} closed the connection: {}", server_, errno_text(errno));
        }
    }
    return ok();
}

Status ServerConnection::receive_some(const std::string& what) {
    char buffer[4096];
    while (true) {
        const ssize_t count = recv(descriptor_, buffer, sizeof buffer, MSG_DONTWAIT);
        if (count > 0) {
            ahead_.append(buffer, size_t(count));
            return ok();
        }
        if (count == 0) return fail(error::launcher_lost, "{} closed the connection instead of {}", server_, what);
        if (errno == EAGAIN || errno == EWOULDBLOCK) {
            WEFT_TRY(wait(POLLIN, what));
        } else if (errno != EINTR) {
            return fail(error::launcher_lost, "{} closed the connection instead of {}: {}", server_, what,
                        errno_text(errno));
        }
    }
}

Result<std::string> ServerConnection::receive(size_t bytes, const std::string& what) {
    while (ahead_.size() < bytes) WEFT_TRY(receive_some(what));
    std::string taken = ahead_.substr(0, bytes);
    ahead_.erase(0, bytes);
    return taken;
}

Result<std::string> ServerConnection::receive_line(size_t most, const std::string& what) {
    size_t end = 0;
    while ((end = ahead_.find('\n')) == std::string::npos) {
        if (ahead_.size() > most) return unexpected_answer(what, ahead_);
        WEFT_TRY(receive_some(what));
    }
    std::string line = ahead_.substr(0, end);
    ahead_.erase(0, end + 1);
    if (line.size() > most) return unexpected_answer(what, line);
    if (!line.empty() && line.back() == '\r') line.pop_back();
    return line;
}

Status ServerConnection::unexpected_answer(const std::string& what, std::string_view answer) const {
    return fail(error::launcher_lost, "{} sent `{}` instead of {}", server_, shown(answer), what);
}

}  // namespace weft::internal
