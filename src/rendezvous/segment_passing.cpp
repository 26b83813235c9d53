#include "src/rendezvous/segment_passing.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "src/base/clock.hpp"
#include "src/base/log.hpp"
#include "src/net/descriptors.hpp"
#include "src/segment/failure_record.hpp"

namespace weft::internal {

namespace {

constexpr int clients_at_once = 64;  // so that a step ends even if connections come very fast
constexpr int last_slice_ms = 5;
constexpr int64_t last_answers_us = 100'000;
constexpr int64_t hello_timeout_us = 5'000'000;  // a client sends its hello as soon as it has connected

}  // namespace

Status check_user(int socket, int& pid) {
    ucred peer{};
    socklen_t length = sizeof peer;
    if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0)
        return fail(error::system_call, "the peer of a Unix socket could not be read: {}", errno_text(errno));
    pid = peer.pid;
    if (peer.uid != geteuid())
        return fail(error::init_foreign_process,
                    "process {} of user {} takes part in the rendezvous; ranks of one communicator run as one user",
                    peer.pid, peer.uid);
    return ok();
}

SegmentServer::SegmentServer(Fd listener, std::shared_ptr<Segment> segment, const net::Identity& identity)
    : listener_(std::move(listener)), segment_(std::move(segment)), identity_(identity) {}

void SegmentServer::add_descriptors(std::vector<pollfd>& list) const {
    list.push_back({listener_.number(), POLLIN, 0});
    for (const Client& client : clients_) list.push_back({client.socket.number(), client.handshake.events(), 0});
}

Status SegmentServer::advance() {
    for (int accepted = 0; accepted < clients_at_once; ++accepted) {
        Fd socket = Fd::accept(listener_.number());
        if (!socket) {
            // Clients that are being served free their descriptors soon.
            const int error = errno;
            const bool exhausted = error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS;
            if (exhausted && clients_.empty())
                return fail(error::system_descriptors, "the leader of the rendezvous cannot accept another process: {}",
                            no_descriptor_text(error));
            if (is_lost_descriptor(error) || error == EINVAL)
                return fail(error::usage_closed_descriptor, "{}", lost_descriptor_text);
            break;
        }
        Client client;
        client.socket = std::move(socket);
        client.since_us = now_us();
        if (Status status = check_user(client.socket.number(), client.pid); !status)
            WEFT_LOG(warn, init, "a connection was refused: {}", status.text());
        else
            clients_.push_back(std::move(client));
    }
    for (auto client = clients_.begin(); client != clients_.end();) {
        auto done = advance(*client);
        if (!done) WEFT_LOG(warn, init, "process {} was refused: {}", client->pid, done.status().text());
        client = !done || *done ? clients_.erase(client) : std::next(client);
    }
    return ok();
}

void SegmentServer::answer_last_clients() {
    const int64_t deadline = now_us() + last_answers_us;
    do {
        if (!advance() || clients_.empty()) return;
        std::vector<pollfd> list;
        add_descriptors(list);
        poll(list.data(), nfds_t(list.size()), last_slice_ms);
    } while (now_us() < deadline);
}

// True: the client has the segment, or was refused.
Result<bool> SegmentServer::advance(Client& client) {
    const auto find = [this](const net::IdName& name) { return name == identity_.name ? &identity_ : nullptr; };
    using Outcome = net::ServerHandshake::Outcome;
    switch (client.welcome ? Outcome::welcome : client.handshake.advance(client.socket.number(), find)) {
        case Outcome::welcome: break;
        case Outcome::pending:
            // A client that has sent its hello may be slow: it may be stopped, or the machine busy.
            if (!client.handshake.silent() || now_us() - client.since_us <= hello_timeout_us) return false;
            return fail(error::tcp_stranger, "it connected and sent nothing for {} s", hello_timeout_us / 1'000'000);
        case Outcome::outdated:
            FailureRecord(*segment_).raise(
                error::mismatch_version, -1,
                fmt::format("process {} refuses process {}: {}", getpid(), client.pid, client.handshake.sentence()));
            return true;
        case Outcome::refused: return fail(error::tcp_secret, "{}", client.handshake.sentence());
        case Outcome::noise: return fail(error::tcp_stranger, "it does not speak Weft's handshake");
        case Outcome::impostor: return fail(error::tcp_secret, "it does not know the secret of the unique id");
        case Outcome::broken: return fail(error::init_rank_died, "it closed the connection");
    }
    client.welcome = true;
    const int passed[] = {segment_->memory().fd(), segment_->doorbell().number()};
    return net::send_descriptors(client.socket.number(),
                                 {passed, segment_->doorbell().number() >= 0 ? size_t(2) : size_t(1)});
}

SegmentClient::SegmentClient(Fd socket, int leader_pid, const net::Identity& identity)
    : socket_(std::move(socket)), leader_pid_(leader_pid), handshake_(identity, {.kind = net::segment}) {}

void SegmentClient::add_descriptors(std::vector<pollfd>& list) const {
    list.push_back({socket_.number(), welcome_ ? short(POLLIN) : handshake_.events(), 0});
}

// Failures of this process's own system calls stay as they are.
Status SegmentClient::lost_leader(Status cause) const {
    if (cause.id() == error::tcp_secret)
        return fail(error::init_foreign_process,
                    "process {} holds the rendezvous's socket but does not know the secret of the unique id",
                    leader_pid_);
    if (cause.id() == error::mismatch_version)
        return fail(cause, "process {}, which leads the rendezvous: {}", leader_pid_, cause.sentence());
    if (cause.code() != weftRemoteError) return cause;
    return fail(error::init_leader_lost,
                "process {}, which led the rendezvous of the ranks, ended or refused this process ({})", leader_pid_,
                cause.sentence());
}

Result<std::shared_ptr<Segment>> SegmentClient::advance() {
    if (!welcome_) {
        auto done = handshake_.advance(socket_.number());
        if (!done) return lost_leader(done.take_status());
        if (!*done) return std::shared_ptr<Segment>();
        welcome_ = true;
    }
    auto passed = net::receive_descriptors(socket_.number());
    if (!passed) return lost_leader(passed.take_status());
    if (!*passed) return std::shared_ptr<Segment>();
    std::vector<Fd>& descriptors = **passed;
    if (descriptors.empty())
        return fail(error::internal_state, "process {}, which leads the rendezvous, passed no segment", leader_pid_);
    auto segment = Segment::map(std::move(descriptors[0]), false);
    if (segment && descriptors.size() > 1) (*segment)->doorbell().set(std::move(descriptors[1]));
    return segment;
}

}  // namespace weft::internal
