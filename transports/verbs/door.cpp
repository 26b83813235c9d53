#include "transports/verbs/door.hpp"

#include <algorithm>

#include "src/base/log.hpp"
#include "transports/verbs/link_table.hpp"

namespace weft::internal::verbs {

Result<std::shared_ptr<Door>> Door::open(const net::Identity& identity, int rank, const Devices& devices,
                                         const Settings& settings, std::vector<Port> ports,
                                         std::shared_ptr<Inbox> inbox) {
    auto dispatcher = AcceptDispatcher::of_process();
    if (!dispatcher) return dispatcher.take_status();
    auto events = EventLog::of_process(devices);
    if (!events) return events.take_status();
    std::shared_ptr<Door> door(new Door(Site{.identity = identity,
                                             .rank = rank,
                                             .devices = devices,
                                             .settings = settings,
                                             .ports = std::move(ports),
                                             .inbox = std::move(inbox),
                                             .dispatcher = std::move(*dispatcher),
                                             .token = make_token(),
                                             .events = std::move(*events)}));
    door->site_.service().post([door] { door->begin(); });
    return door;
}

void Door::begin() {
    site_.dispatcher->listener().register_identity(site_.identity);
    site_.dispatcher->expect(site_.identity.name, net::rdma, site_.token,
                             [this](net::AcceptedConnection accepted) { take_socket(std::move(accepted)); });
    site_.service().on_failure(this, [this](ErrorId error, const char* what) { fail_all(error, what); });
    site_.events->watch(this, [this](size_t device, const Event& event) { take_event(device, event); });
}

void Door::end() {
    site_.service().run([this] {
        ended_ = true;
        site_.events->watch(this, {});
        site_.service().on_failure(this, {});
        site_.dispatcher->stop_expecting(site_.identity.name, net::rdma, site_.token);
        site_.dispatcher->listener().unregister_identity(site_.identity.name);
        for (const auto& [token, link] : links_) link->part();
        links_.clear();
        by_index_.clear();
        visitors_.clear();
        site_.listening.clear();
    });
}

void Door::fail_all(ErrorId error, const char* what) {
    for (const auto& [token, link] : links_) link->fail({error, what});
}

void Door::listen(uint32_t number, std::shared_ptr<Incoming> incoming) {
    site_.service().post([door = shared_from_this(), number, incoming = std::move(incoming)] {
        if (door->ended_) return;
        door->site_.listening[number] = incoming;
        door->site_.flushes = door->site_.flushes || incoming->needs_flush();
    });
}

void Door::connect(const ListenAddress& address, std::shared_ptr<Outgoing> outgoing) {
    site_.service().post([door = shared_from_this(), address, outgoing = std::move(outgoing)] {
        if (door->ended_) return;
        LinkSetup& setup = door->setup_for(address.token, outgoing->shape.peer);
        setup.want(address.number, outgoing);
        setup.dial(address);
    });
}

void Door::tell_failure(uint32_t link, Status why) {
    site_.service().post([door = shared_from_this(), link, failure = why.failure()] {
        if (!door->ended_ && link < door->by_index_.size()) door->by_index_[link]->fail(Status(failure));
    });
}

void Door::tell_lane(uint32_t link, const LaneNotice& notice) {
    site_.service().post([door = shared_from_this(), link, notice] {
        if (!door->ended_ && link < door->by_index_.size()) door->by_index_[link]->take_notice(notice);
    });
}

void Door::take_event(size_t device, const Event& event) {
    for (const auto& [token, link] : links_) link->take_event(device, event);
    if (event.type != event::cq_error) return;
    // A queue that overran may report nothing more, not even its failure. Its lane may still be in the making.
    if (auto queue = site_.queues.fail(event.queue))
        site_.tell([queue = std::move(queue)](LinkTable& table) { table.fail_queue(queue); });
}

LinkSetup& Door::setup_for(uint64_t token, int peer) {
    std::unique_ptr<LinkSetup>& setup = links_[token];
    if (!setup) {
        setup = std::make_unique<LinkSetup>(site_, uint32_t(by_index_.size()), token, peer);
        by_index_.push_back(setup.get());
    }
    return *setup;
}

void Door::take_socket(net::AcceptedConnection accepted) {
    const uint64_t number = next_visitor_++;
    Visitor& visitor = visitors_[number];
    visitor.route = std::make_shared<LinkSetup*>(nullptr);
    visitor.connection = std::make_unique<ControlConnection>(
        site_.service(), std::move(accepted.socket),
        [this, number, route = visitor.route](uint32_t kind, ByteReader& content) {
            *route ? (*route)->take_frame(kind, content) : take_hello(number, kind, content);
        },
        [this, number, route = visitor.route](const Status& why) {
            if (*route)
                (*route)->take_end(why);
            else
                visitors_.erase(number);
        });
}

void Door::take_hello(uint64_t number, uint32_t kind, ByteReader& content) {
    const auto visitor = visitors_.find(number);
    if (visitor == visitors_.end()) return;
    const auto offer = kind == frame_hello ? Offer::read(content) : std::nullopt;
    if (!offer || offer->peer_token != site_.token || offer->rank == site_.rank) {
        WEFT_LOG_RANK(site_.rank, warn, net, "a peer at {} sends an offer of RDMA that cannot be read",
                      visitor->second.connection->peer().text());
        visitors_.erase(visitor);
        return;
    }
    LinkSetup& setup = setup_for(offer->token, offer->rank);
    const auto route = visitor->second.route;
    *route = &setup;
    if (setup.adopt(visitor->second.connection, *offer))
        visitors_.erase(visitor);
    else
        *route = nullptr;
}

}  // namespace weft::internal::verbs
