#include "transports/verbs/endpoint.hpp"

#include <unistd.h>

#include <algorithm>

#include "src/base/clock.hpp"
#include "src/base/per_process.hpp"
#include "topology/nearest_ports.hpp"

namespace weft::internal::verbs {

namespace {

constexpr int completions_at_once = 16;
constexpr int64_t drain_us = 1'000'000;

// By the best pair of GIDs. Link-local addresses of Ethernet are alike on all networks.
bool one_subnet(const Devices& devices, const Settings& settings, const Port& one, const Port& other) {
    const auto ones = devices.all()[one.device].context->gids(one.number);
    const auto others = devices.all()[other.device].context->gids(other.number);
    if (!ones || !others) return false;
    GidRules rules = settings.gids;
    rules.index = -1;
    const auto pairs = rank_gid_pairs(*ones, *others, rules);
    if (pairs.empty() || !pairs[0].same_subnet) return false;
    const PortGid& gid = (*ones)[pairs[0].own];
    return gid.type == gid_infiniband || !gid.is_link_local();
}

// Both ends take the first ports of their lists, and neither knows the other's choice. So only ports on the subnet of
// the first one change places: the nearest to the rank comes first. Ports of separate networks keep their order.
std::vector<Port> in_order(const Devices& devices, const Settings& settings, std::vector<Port> ports,
                           const std::string& gpu, int rank) {
    const auto behind = std::stable_partition(ports.begin(), ports.end(), [&, first = ports[0]](const Port& port) {
        return one_subnet(devices, settings, first, port);
    });
    std::vector<topology::NicPort> known;
    for (auto port = ports.begin(); port != behind; ++port)
        known.push_back({.device = port->name, .number = port->number});
    std::vector<Port> ordered;
    if (known.size() > 1)
        for (const int index : topology::nearest_ports(known, gpu, rank)) ordered.push_back(ports[size_t(index)]);
    const auto rest = ordered.empty() ? ports.begin() : behind;
    ordered.insert(ordered.end(), rest, ports.end());
    return ordered;
}

}  // namespace

Result<std::vector<Port>> ports_of_rank(const Devices& devices, const Settings& settings, const std::string& gpu,
                                        int rank) {
    auto ports = devices.ports(settings);
    if (!ports) return ports;
    ports = in_order(devices, settings, std::move(*ports), gpu, rank);
    if (ports->size() > size_t(settings.rails)) ports->resize(size_t(settings.rails));
    return ports;
}

Result<std::shared_ptr<Endpoint>> Endpoint::of(const ConnectionOptions& options) {
    using Key = std::tuple<net::IdName, int, ConnectionOptions::Driver>;
    return shared_by_process<Endpoint>(
        Key{options.identity->name, options.self, options.driver}, [&]() -> Result<std::shared_ptr<Endpoint>> {
            auto devices = Devices::of_process();
            if (!devices) return devices.take_status();
            const Settings settings = verbs::settings();
            auto ports = ports_of_rank(**devices, settings, options.gpu, options.self);
            if (!ports) return ports.take_status();
            Fd event = Fd::event();
            if (!event)
                return fail(error::system_descriptors, "rank {} has no descriptor for its RDMA connections: {}",
                            options.self, no_descriptor_text(errno));
            auto inbox = std::make_shared<Inbox>(std::move(event));
            auto door = Door::open(*options.identity, options.self, **devices, settings, std::move(*ports), inbox);
            if (!door) return door.take_status();
            return std::make_shared<Endpoint>(**devices, settings, std::move(inbox), std::move(*door));
        });
}

Endpoint::Endpoint(const Devices& devices, const Settings& settings, std::shared_ptr<Inbox> inbox,
                   std::shared_ptr<Door> door)
    : process_(process_token()),
      devices_(devices),
      settings_(settings),
      inbox_(std::move(inbox)),
      door_(std::move(door)) {}

Endpoint::~Endpoint() {
    if (process_ != process_token()) {
        // A child after fork: the queue pairs belong to the parent.
        for (auto& link : table_.links) (void)link.release();
        for (auto& queue : table_.queues) (void)new std::shared_ptr<CompletionQueue>(std::move(queue));
        for (auto& incoming : table_.closed) (void)new std::shared_ptr<Incoming>(std::move(incoming));
        (void)new std::shared_ptr<Door>(std::move(door_));
        return;
    }
    drain();
    door_->end();
    take_news();  // frees what was on its way to this endpoint
    table_.links.clear();
}

void Endpoint::drain() {
    const int64_t deadline = now_us() + drain_us;
    for (;;) {
        (void)poll();
        const bool busy = std::any_of(table_.links.begin(), table_.links.end(),
                                      [](const auto& link) { return link && link->busy(); });
        if (!busy || now_us() > deadline) return;
        usleep(20);
    }
}

ListenAddress Endpoint::listen(const ConnectionOptions& options, std::shared_ptr<Incoming> incoming) {
    const uint32_t number = next_number_.fetch_add(1, std::memory_order_relaxed);
    door_->listen(number, std::move(incoming));
    return {.token = door_->token(),
            .number = number,
            .depth = options.depth,
            .slot_bytes = options.slot_bytes,
            .addresses = door_->addresses()};
}

void Endpoint::connect(const ListenAddress& address, std::shared_ptr<Outgoing> outgoing) {
    door_->connect(address, std::move(outgoing));
}

void Endpoint::close(std::shared_ptr<Outgoing> outgoing) {
    inbox_->post([outgoing](LinkTable&) {
        outgoing->closed = true;
        if (outgoing->link) outgoing->link->release_closed();
    });
}

void Endpoint::close(std::shared_ptr<Incoming> incoming) {
    inbox_->post([incoming](LinkTable& table) {
        incoming->closed = true;
        table.closed.push_back(incoming);
    });
}

bool Endpoint::take_news() {
    inbox_->run(table_);
    tell_failures();
    return true;
}

bool Endpoint::poll() {
    bool any = inbox_->any() && take_news();
    abi::Completion completions[completions_at_once];
    for (size_t i = 0; i < table_.queues.size(); ++i) {
        const int count = table_.queues[i]->poll(completions, completions_at_once);
        if (count < 0) {
            fail_queue(*table_.queues[i]);
            any = true;
        }
        for (int each = 0; each < count; ++each) any = take(completions[each]) || any;
    }
    return any;
}

bool Endpoint::take(const abi::Completion& completion) {
    Link* link = table_.link(RequestId::link(completion.wr_id));
    // The news about a link or a connection are posted before its peer can send.
    if (inbox_->any()) [[unlikely]] {
        take_news();
        link = table_.link(RequestId::link(completion.wr_id));
    }
    if (link == nullptr) return false;
    const bool goes_on = link->take(completion);
    if (link->failed()) [[unlikely]]
        tell_failures();
    return goes_on;
}

void Endpoint::tell_failures() {
    told_.resize(table_.links.size());
    for (size_t index = 0; index < table_.links.size(); ++index) {
        if (!table_.links[index] || !table_.links[index]->failed() || told_[index]) continue;
        told_[index] = true;
        door_->tell_failure(uint32_t(index), table_.links[index]->failure().copy());
    }
}

void Endpoint::fail_queue(const CompletionQueue& queue) {
    for (const auto& link : table_.links) {
        if (!link) continue;
        for (const Lane& lane : link->lanes())
            if (lane.queue.get() == &queue)
                link->fail(fail(error::verbs_call, "{} fails to report completions: the device failed or was removed",
                                described(lane.own)));
    }
    tell_failures();
}

void Endpoint::add_wakeups(Wakeups& wakeups) {
    for (const auto& link : table_.links)
        if (link && link->waits_for_late_data()) wakeups.by_time = true;
    // A completion that came before the queue was armed gives no signal, so poll until there is none.
    for (bool quiet = false; !quiet;) {
        quiet = true;
        for (const auto& queue : table_.queues) {
            queue->take_signals();
            if (const Status armed = queue->arm(); !armed) wakeups.by_time = true;
        }
        abi::Completion completion;
        for (size_t i = 0; i < table_.queues.size(); ++i)
            while (table_.queues[i]->poll(&completion, 1) > 0) {
                quiet = false;
                if (take(completion)) wakeups.ready = true;
            }
        if (inbox_->any()) {
            take_news();
            wakeups.ready = true;
            quiet = false;
        }
        if (wakeups.ready) break;
    }
    // All connections of an endpoint share its descriptors.
    for (const pollfd& each : wakeups.descriptors)
        if (each.fd == inbox_->descriptor()) return;
    wakeups.descriptors.push_back({inbox_->descriptor(), POLLIN, 0});
    for (const auto& queue : table_.queues) wakeups.descriptors.push_back({queue->fd(), POLLIN, 0});
}

}  // namespace weft::internal::verbs
