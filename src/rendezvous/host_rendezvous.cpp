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
#include "src/rendezvous/root_hint.hpp"

namespace weft::internal {

namespace {

constexpr int slice_ms = 5, control_slice_ms = 50;
constexpr int64_t try_apart_us = 500'000;
constexpr int64_t look_again_us = 2'000;

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

HostRendezvous::HostRendezvous(const UniqueId& id, uint64_t host, int ranks) : id_(id), host_(host), ranks_(ranks) {}

HostRendezvous::~HostRendezvous() {
    if (server_) server_->answer_last_clients();
    if (control_) Control::leave(std::move(control_));
}

Result<std::shared_ptr<Segment>> HostRendezvous::advance() {
    std::lock_guard lock(mutex_);
    if (!role_known()) WEFT_TRY(take_role());
    if (server_) WEFT_TRY(server_->advance());
    if (client_) {
        auto segment = client_->advance();
        if (!segment) return segment;
        segment_ = std::move(*segment);
        if (segment_) client_.reset();
    }
    return segment_;
}

bool HostRendezvous::wait(bool has_segment) {
    if (has_segment && awaited_.exchange(true, std::memory_order_acquire)) return false;
    std::vector<pollfd> list;
    const int slice = descriptors(list);
    const bool waits = !list.empty() || !has_segment;
    if (waits) poll(list.data(), nfds_t(list.size()), slice);
    if (has_segment) awaited_.store(false, std::memory_order_release);
    return waits;
}

// Appends the descriptors to wait for; returns the longest time to wait in milliseconds.
int HostRendezvous::descriptors(std::vector<pollfd>& list) {
    std::lock_guard lock(mutex_);
    if (server_) server_->add_descriptors(list);
    if (client_) client_->add_descriptors(list);
    if (control_) list.push_back({control_->settled_event(), POLLIN, 0});
    // The control reports joined ranks. Without it the leader must poll the segment, and a client its connection.
    return control_ ? control_slice_ms : segment_ ? 1 : slice_ms;
}

void HostRendezvous::close() {
    std::lock_guard lock(mutex_);
    server_.reset();
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
    if (!id_.has_root() || (!rooting && (!leader_.here || control_))) return ok();
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
    if (!leader_.here || control_) return ok();
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
            (*segment)->doorbell().set(std::move(doorbell));
        }
        segment_ = std::move(*segment);
        leader_.here = true;
        server_.emplace(std::move(socket_fd), segment_, id_.identity());
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
    WEFT_TRY(check_user(client.number(), leader_.pid));
    client_.emplace(std::move(client), leader_.pid, id_.identity());
    return ok();
}

}  // namespace weft::internal
