#include "transports/verbs/door.hpp"

#include <algorithm>

#include "src/base/log.hpp"

namespace weft::internal::verbs {

Result<std::shared_ptr<CompletionQueue>> QueueRoom::reserve(const Devices& devices, size_t device, int entries) {
    constexpr int first_entries = 8'192;
    int size = first_entries;
    for (Queue& queue : queues_) {
        if (queue.device != device) continue;
        if (queue.left >= entries) {
            queue.left -= entries;
            return queue.queue;
        }
        size *= 2;
    }
    const Context& context = *devices.all()[device].context;
    size = std::max(entries, std::min(size, context.facts().limits.queue_entries));
    auto made = CompletionQueue::make(context, size, true);
    if (!made) return made.take_status();
    queues_.push_back({device, std::shared_ptr<CompletionQueue>(std::move(*made)), size - entries});
    return queues_.back().queue;
}

Door::Door(const net::Identity& identity, int rank, const Devices& devices, const Settings& settings,
           std::vector<Port> ports, std::shared_ptr<Inbox> inbox, std::shared_ptr<AcceptDispatcher> dispatcher)
    : identity_(identity),
      rank_(rank),
      devices_(devices),
      settings_(settings),
      ports_(std::move(ports)),
      inbox_(std::move(inbox)),
      dispatcher_(std::move(dispatcher)),
      token_(make_token()) {}

Result<std::shared_ptr<Door>> Door::open(const net::Identity& identity, int rank, const Devices& devices,
                                         const Settings& settings, std::vector<Port> ports,
                                         std::shared_ptr<Inbox> inbox) {
    auto dispatcher = AcceptDispatcher::of_process();
    if (!dispatcher) return dispatcher.take_status();
    std::shared_ptr<Door> door(
        new Door(identity, rank, devices, settings, std::move(ports), std::move(inbox), std::move(*dispatcher)));
    door->service().post([door] { door->begin(); });
    return door;
}

void Door::begin() {
    dispatcher_->listener().register_identity(identity_);
    dispatcher_->expect(identity_.name, net::rdma, token_,
                        [this](net::AcceptedConnection accepted) { accept(std::move(accepted)); });
    service().on_failure(this, [this](ErrorId error, const char* what) { fail_all(error, what); });
}

void Door::end() {
    service().run([this] {
        ended_ = true;
        service().on_failure(this, {});
        dispatcher_->stop_expecting(identity_.name, net::rdma, token_);
        dispatcher_->listener().unregister_identity(identity_.name);
        for (const auto& [token, link] : links_) link->part();
        links_.clear();
        by_index_.clear();
        visitors_.clear();
        listening_.clear();
    });
}

void Door::fail_all(ErrorId error, const char* what) {
    for (const auto& [token, link] : links_) link->fail({error, what});
}

void Door::listen(uint32_t number, std::shared_ptr<Incoming> incoming) {
    service().post([door = shared_from_this(), number, incoming = std::move(incoming)] {
        if (!door->ended_) door->listening_[number] = incoming;
    });
}

void Door::connect(const ListenAddress& address, std::shared_ptr<Outgoing> outgoing) {
    service().post([door = shared_from_this(), address, outgoing = std::move(outgoing)] {
        if (door->ended_) return;
        LinkSetup& setup = door->setup_for(address.token, outgoing->peer);
        setup.want(address.number, outgoing);
        setup.dial(address);
    });
}

void Door::tell_failure(uint32_t link, Status why) {
    service().post([door = shared_from_this(), link, failure = why.failure()] {
        if (!door->ended_ && link < door->by_index_.size()) door->by_index_[link]->fail(Status(failure));
    });
}

std::shared_ptr<Incoming> Door::listening(uint32_t number) const {
    const auto place = listening_.find(number);
    return place == listening_.end() ? nullptr : place->second;
}

std::vector<std::shared_ptr<Incoming>> Door::listening_to(int peer) const {
    std::vector<std::shared_ptr<Incoming>> all;
    for (const auto& [number, incoming] : listening_)
        if (incoming->peer == peer) all.push_back(incoming);
    return all;
}

LinkSetup& Door::setup_for(uint64_t token, int peer) {
    std::unique_ptr<LinkSetup>& setup = links_[token];
    if (!setup) {
        setup = std::make_unique<LinkSetup>(*this, uint32_t(by_index_.size()), token, peer);
        by_index_.push_back(setup.get());
    }
    return *setup;
}

void Door::accept(net::AcceptedConnection accepted) {
    const uint64_t number = next_visitor_++;
    Visitor& visitor = visitors_[number];
    visitor.route = std::make_shared<LinkSetup*>(nullptr);
    visitor.connection = std::make_unique<ControlConnection>(
        service(), std::move(accepted.socket),
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
    if (!offer || offer->peer_token != token_ || offer->rank == rank_) {
        WEFT_LOG_RANK(rank_, warn, net, "a peer at {} sends an offer of RDMA that cannot be read",
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
