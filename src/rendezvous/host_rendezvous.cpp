#include "src/rendezvous/host_rendezvous.hpp"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <map>

#include "src/base/clock.hpp"
#include "src/base/cpu.hpp"
#include "src/base/log.hpp"
#include "src/base/options.hpp"
#include "src/base/per_process.hpp"
#include "src/net/descriptors.hpp"
#include "src/rendezvous/root_hint.hpp"

namespace weft::internal {

namespace {

constexpr int accepted_at_once = 64;  // so that a step ends even if connections come very fast

constexpr int slice_ms = 5, control_slice_ms = 50;
constexpr int64_t try_apart_us = 500'000;
constexpr int64_t look_again_us = 2'000;
constexpr int64_t last_answers_us = 100'000;
constexpr int64_t hello_timeout_us = 5'000'000;  // a client sends its hello as soon as it has connected

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

}  // namespace

std::shared_ptr<HostRendezvous> HostRendezvous::of_process(const UniqueId& id, uint64_t host, int ranks) {
    struct All {
        std::mutex mutex;
        std::map<std::string, std::weak_ptr<HostRendezvous>> by_name;
    };
    static PerProcess<All> processes;
    All& all = processes.get();
    std::lock_guard lock(all.mutex);
    std::erase_if(all.by_name, [](const auto& entry) { return entry.second.expired(); });
    auto& entry = all.by_name[id.rendezvous_name(host)];
    auto rendezvous = entry.lock();
    if (!rendezvous) {
        rendezvous = std::make_shared<HostRendezvous>(id, host, ranks);
        entry = rendezvous;
    }
    return rendezvous;
}

HostRendezvous::HostRendezvous(const UniqueId& id, uint64_t host, int ranks)
    : id_(id), identity_(id.identity()), host_(host), ranks_(ranks) {}

HostRendezvous::~HostRendezvous() {
    if (listener_) answer_last_clients();
    if (control_) Control::leave(std::move(control_));
}

Result<std::shared_ptr<Segment>> HostRendezvous::advance() {
    std::lock_guard lock(mutex_);
    if (!role_known()) WEFT_TRY(take_role());
    if (listener_) WEFT_TRY(serve());
    if (connection_) WEFT_TRY(follow_leader());
    return segment_;
}

int HostRendezvous::descriptors(std::vector<pollfd>& list) {
    std::lock_guard lock(mutex_);
    if (listener_) list.push_back({listener_.number(), POLLIN, 0});
    if (connection_)
        list.push_back(
            {connection_->socket.number(), connection_->welcome ? short(POLLIN) : connection_->handshake.events(), 0});
    for (const Client& client : clients_) list.push_back({client.socket.number(), client.handshake.events(), 0});
    if (control_) list.push_back({control_->settled_event(), POLLIN, 0});
    // The control reports joined ranks. Without it the leader must poll the segment, and a client its connection.
    return control_ ? control_slice_ms : segment_ ? 1 : slice_ms;
}

void HostRendezvous::close() {
    std::lock_guard lock(mutex_);
    listener_.reset();
    clients_.clear();
}

Status HostRendezvous::meet_other_hosts(bool roots) {
    std::lock_guard lock(mutex_);
    Status status = try_other_hosts(roots);
    if (status || foreign()) return status;
    // All ranks may be on this host, which needs no network.
    obstacle_ = status.sentence();
    return ok();
}

// Empty: not found yet, and `obstacle_` has the reason.
std::optional<std::vector<net::Address>> HostRendezvous::find_root() {
    if (id_.root_host().empty()) return id_.root_addresses();
    if (!resolution_) resolution_ = net::look_up(id_.root_host(), id_.root_port());
    auto found = resolution_->take();
    if (!found) {
        obstacle_ = fmt::format("the root of the rendezvous was not found: the name {} is still being looked up",
                                id_.root_host());
        next_try_us_ = now_us() + look_again_us;
        return {};
    }
    resolution_.reset();
    root_hint_ = *found ? loopback_hint(root_variable(id_.root_host()), id_.root_host(), **found) : "";
    if (*found) return std::move(**found);
    // Names of pods appear late.
    obstacle_ = fmt::format("the root of the rendezvous was not found: {}", found->status().sentence());
    return {};
}

Status HostRendezvous::try_other_hosts(bool roots) {
    const bool rooting = roots && id_.derived() && !root_;
    if (!id_.has_root() || (!rooting && (!leads_ || control_))) return ok();
    // Another rank of this process may have tried just before the rank that makes it the root.
    int64_t& next_us = rooting ? next_root_us_ : next_try_us_;
    if (now_us() < next_us) return ok();
    next_us = now_us() + try_apart_us;
    auto dispatcher = AcceptDispatcher::of_process();
    if (!dispatcher) return dispatcher.take_status();
    if (rooting) {
        // Before the port listens: a rank that connects while there is no root fails for good.
        auto root = std::make_unique<RootRendezvous>(*dispatcher, id_.identity());
        if (id_.root_port() != 0) WEFT_TRY((*dispatcher)->listener().listen_also(id_.root_port()));
        root_ = std::move(root);
    }
    if (!leads_ || control_) return ok();
    auto addresses = find_root();
    if (!addresses) return ok();
    obstacle_.clear();
    ControlSettings settings;
    settings.settled_event = Fd::event();
    if (!settings.settled_event)
        return fail(error::system_descriptors, "no descriptor is left for the rendezvous: {}",
                    no_descriptor_text(errno));
    settings.heartbeat_ms = options().heartbeat_ms;
    settings.check_in.root = std::move(*addresses);
    settings.check_in.root_exists = !id_.derived();
    settings.check_in.root_hint = root_hint_;
    settings.check_in.root_elsewhere = id_.derived() ? !id_.root_host().empty() && !root_ : !id_.made_here();
    settings.check_in.listener_existed = id_.of_child();
    HostEntry& self = settings.check_in.self;
    self.identity = host_;
    char name[HOST_NAME_MAX + 1] = {};
    gethostname(name, sizeof name - 1);
    self.name = options().hostid.empty() ? name : options().hostid;
    self.pid = getpid();
    self.process = net::process_mark();
    self.ranks = ranks_;
    self.boot = boot_identity();
    self.link_mbps = net::link_mbps();
    if (machine_ && *machine_)
        self.machine = **machine_;
    else if (machine_)
        self.refusal =
            fail(machine_->status(), "process {} on {}: {}", self.pid, self.name, machine_->status().sentence())
                .failure();
    self.addresses = (*dispatcher)->listener().addresses();
    control_ = std::make_shared<Control>(*dispatcher, segment_, id_.identity(), std::move(settings));
    return ok();
}

Result<std::shared_ptr<Membership>> HostRendezvous::membership() {
    std::lock_guard lock(mutex_);
    auto membership = membership_.lock();
    if (membership) return membership;
    auto dispatcher = AcceptDispatcher::of_process();
    if (!dispatcher) return dispatcher.take_status();
    membership =
        std::make_shared<Membership>(std::move(*dispatcher), id_.identity(), std::move(control_), std::move(root_));
    membership_ = membership;
    return membership;
}

std::string HostRendezvous::obstacle() {
    std::lock_guard lock(mutex_);
    return control_ ? control_->obstacle() : obstacle_;
}

Status HostRendezvous::take_role() {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string name = id_.rendezvous_name(host_);
    memcpy(address.sun_path + 1, name.data(), name.size());  // abstract: the first byte is zero
    const auto length = socklen_t(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    Fd socket_fd = Fd::socket(AF_UNIX, SOCK_STREAM);
    if (!socket_fd)
        return fail(error::system_descriptors, "a Unix socket could not be made: {}", no_descriptor_text(errno));
    if (bind(socket_fd.number(), reinterpret_cast<sockaddr*>(&address), length) == 0) {
        if (listen(socket_fd.number(), 4096) != 0)
            return fail(error::system_call, "cannot listen on a Unix socket: {}", errno_text(errno));
        auto segment = Segment::create(ranks_, false);
        if (!segment) return segment.take_status();
        if (id_.has_root()) {
            Fd doorbell = Fd::event();
            if (!doorbell)
                return fail(error::system_descriptors, "no descriptor is left for the rendezvous: {}",
                            no_descriptor_text(errno));
            (*segment)->set_doorbell(std::move(doorbell));
        }
        segment_ = std::move(*segment);
        leads_ = true;
        listener_ = std::move(socket_fd);
        WEFT_LOG(info, init, "this process leads the rendezvous of {} ranks, segment of {} KiB", ranks_,
                 segment_->memory().segment_bytes() >> 10);
        return ok();
    }
    if (errno != EADDRINUSE) return fail(error::system_call, "cannot bind a Unix socket: {}", errno_text(errno));
    Fd client = Fd::socket(AF_UNIX, SOCK_STREAM);
    if (!client)
        return fail(error::system_descriptors, "a Unix socket could not be made: {}", no_descriptor_text(errno));
    if (connect(client.number(), reinterpret_cast<sockaddr*>(&address), length) != 0) {
        // The leader does not listen yet, its backlog is full, or it has just ended: the next step tries again.
        if (errno == ECONNREFUSED || errno == EAGAIN || errno == EINTR) return ok();
        return fail(error::system_call, "cannot connect to the leader of the rendezvous: {}", errno_text(errno));
    }
    WEFT_TRY(check_user(client.number(), leader_pid_));
    connection_.emplace(Connection{std::move(client), {identity_, net::Purpose{.kind = net::segment}}});
    return ok();
}

// One step for all clients. A client that breaks the protocol is dropped, so that it cannot harm the rendezvous.
Status HostRendezvous::serve() {
    for (int accepted = 0; accepted < accepted_at_once; ++accepted) {
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
        auto done = serve(*client);
        if (!done) WEFT_LOG(warn, init, "process {} was refused: {}", client->pid, done.status().text());
        client = !done || *done ? clients_.erase(client) : std::next(client);
    }
    return ok();
}

// The rendezvous has failed. Clients that have connected still get the segment, which has the error. Otherwise they
// would see only that the leader closes the connection.
void HostRendezvous::answer_last_clients() {
    const int64_t deadline = now_us() + last_answers_us;
    do {
        if (!serve() || clients_.empty()) return;
        std::vector<pollfd> list;
        for (const Client& client : clients_) list.push_back({client.socket.number(), client.handshake.events(), 0});
        poll(list.data(), nfds_t(list.size()), slice_ms);
    } while (now_us() < deadline);
}

// True: the client has the segment, or was refused.
Result<bool> HostRendezvous::serve(Client& client) {
    const auto find = [this](const net::IdName& name) { return name == identity_.name ? &identity_ : nullptr; };
    using Outcome = net::ServerHandshake::Outcome;
    switch (client.welcome ? Outcome::welcome : client.handshake.advance(client.socket.number(), find)) {
        case Outcome::welcome: break;
        case Outcome::pending:
            // A client that has sent its hello may be slow: it may be stopped, or the machine busy.
            if (!client.handshake.silent() || now_us() - client.since_us <= hello_timeout_us) return false;
            return fail(error::tcp_stranger, "it connected and sent nothing for {} s", hello_timeout_us / 1'000'000);
        case Outcome::outdated:
            segment_->raise(
                error::mismatch_version, -1,
                fmt::format("process {} refuses process {}: {}", getpid(), client.pid, client.handshake.sentence()));
            return true;
        case Outcome::refused: return fail(error::tcp_secret, "{}", client.handshake.sentence());
        case Outcome::noise: return fail(error::tcp_stranger, "it does not speak Weft's handshake");
        case Outcome::impostor: return fail(error::tcp_secret, "it does not know the secret of the unique id");
        case Outcome::broken: return fail(error::init_rank_died, "it closed the connection");
    }
    client.welcome = true;
    const int passed[] = {segment_->memory().fd(), segment_->doorbell()};
    return net::send_descriptors(client.socket.number(), {passed, segment_->doorbell() >= 0 ? size_t(2) : size_t(1)});
}

// The failure of a client whose connection to the leader failed. Failures of this process's own system calls stay.
Status HostRendezvous::lost_leader(Status cause) const {
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

Status HostRendezvous::follow_leader() {
    if (!connection_->welcome) {
        auto done = connection_->handshake.advance(connection_->socket.number());
        if (!done) return lost_leader(done.take_status());
        if (!*done) return ok();
        connection_->welcome = true;
    }
    auto passed = net::receive_descriptors(connection_->socket.number());
    if (!passed) return lost_leader(passed.take_status());
    if (!*passed) return ok();
    std::vector<Fd>& descriptors = **passed;
    if (descriptors.empty())
        return fail(error::internal_state, "process {}, which leads the rendezvous, passed no segment", leader_pid_);
    auto segment = Segment::map(std::move(descriptors[0]), false);
    if (!segment) return segment.take_status();
    if (descriptors.size() > 1) (*segment)->set_doorbell(std::move(descriptors[1]));
    segment_ = std::move(*segment);
    connection_.reset();
    return ok();
}

}  // namespace weft::internal
