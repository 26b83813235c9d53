#include "transports/verbs/endpoint.hpp"

#include <unistd.h>

#include <algorithm>

#include "src/base/clock.hpp"
#include "src/base/per_process.hpp"
#include "topology/nearest_ports.hpp"
#include "transports/verbs/message_posting.hpp"

namespace weft::internal::verbs {

namespace {

constexpr int completions_at_once = 16;
constexpr int64_t drain_us = 1'000'000;

// The nearest to the rank first. The peer's order decides, too, which of them are a pair.
std::vector<Port> in_order(const std::vector<Port>& ports, const std::string& gpu, int rank) {
    std::vector<topology::NicPort> known;
    for (const Port& port : ports) known.push_back({.device = port.name, .number = port.number});
    std::vector<Port> ordered;
    if (known.size() > 1)
        for (const int index : topology::nearest_ports(known, gpu, rank)) ordered.push_back(ports[size_t(index)]);
    return ordered.empty() ? ports : ordered;
}

}  // namespace

Result<std::vector<Port>> ports_of_rank(const Devices& devices, const Settings& settings, const std::string& gpu,
                                        int rank) {
    auto ports = devices.ports(settings);
    if (!ports) return ports;
    ports = in_order(*ports, gpu, rank);
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
        for (auto* queues : {&table_.queues, &table_.failed_queues})
            for (auto& queue : *queues) (void)new std::shared_ptr<CompletionQueue>(std::move(queue));
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
        if (outgoing->link) release_closed(outgoing->link->state());
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
    bool any = inbox_->any() && take_news(), quiet = true;
    abi::Completion completions[completions_at_once];
    for (size_t i = 0; i < table_.queues.size(); ++i) {
        const int count = table_.queues[i]->poll(completions, completions_at_once);
        quiet = quiet && count <= 0;
        if (count < 0) {
            table_.fail_queue(table_.queues[i--]);
            tell_failures();
            any = true;
        }
        for (int each = 0; each < count; ++each) any = take(completions[each]) || any;
    }
    if (recovers_) [[unlikely]]
        step_links(quiet);
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
    if (link->failed() || link->waits_by_time()) [[unlikely]]
        tell_failures();
    return goes_on;
}

void Endpoint::tell_failures() {
    recovers_ = table_.recovers();
    told_.resize(table_.links.size());
    for (size_t index = 0; index < table_.links.size(); ++index) {
        if (!table_.links[index] || !table_.links[index]->failed() || told_[index]) continue;
        told_[index] = true;
        door_->tell_failure(uint32_t(index), table_.links[index]->failure().copy());
    }
}

void Endpoint::step_links(bool quiet) {
    for (const auto& link : table_.links) {
        if (!link) continue;
        if (link->waits_by_time()) link->step(quiet);
        for (const LaneNotice& notice : link->recovery().take_notices()) door_->tell_lane(link->state().index, notice);
    }
    tell_failures();
}

void Endpoint::add_wakeups(Wakeups& wakeups) {
    for (const auto& link : table_.links)
        if (link && link->waits_by_time()) wakeups.by_time = true;
    // A completion that came before the queue was armed gives no signal, so poll until there is none.
    for (bool quiet = false; !quiet;) {
        quiet = true;
        for (const auto& queue : table_.queues) {
            queue->take_signals();
            // A device that was removed refuses. Without a lane its queue wakes nobody.
            if (const Status armed = queue->arm(); !armed && table_.uses(queue)) wakeups.by_time = true;
        }
        abi::Completion completion;
        for (size_t i = 0; i < table_.queues.size(); ++i)
            while (i < table_.queues.size() && table_.queues[i]->poll(&completion, 1) > 0) {  // news may end it
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
