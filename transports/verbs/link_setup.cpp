#include "transports/verbs/link_setup.hpp"

#include <unistd.h>

#include <algorithm>

#include "src/base/clock.hpp"
#include "src/base/log.hpp"
#include "src/base/thread.hpp"
#include "transports/verbs/door.hpp"
#include "transports/verbs/endpoint.hpp"

namespace weft::internal::verbs {

namespace {

constexpr int64_t retry_us = 20'000;
constexpr int rights_of_peer = access::local_write | access::remote_write | access::remote_read;

std::string host_name() {
    char name[256] = {};
    return gethostname(name, sizeof name - 1) == 0 ? name : "an unnamed host";
}

// Not 0, and unlike that of an earlier queue pair of this number, whose late packets are dropped.
uint32_t first_sequence() {
    uint32_t number = 0;
    net::random_bytes(&number, sizeof number);
    return (number & 0xffffff) | 1;
}

}  // namespace

LinkSetup::LinkSetup(Door& door, uint32_t index, uint64_t peer_token, int peer)
    : door_(door), index_(index), peer_token_(peer_token), peer_(peer) {}

LinkSetup::~LinkSetup() {
    *alive_ = false;
    door_.service().cancel(retry_timer_);
}

void LinkSetup::dial(const ListenAddress& address) {
    if (state_ != State::idle) return;
    state_ = State::dialing;
    dialing_ = std::make_unique<AsyncConnect>(
        door_.service(), door_.identity(), net::Purpose{net::rdma, 0, address.token}, address.target(),
        address.addresses, [this, address](Result<Fd> socket) { dialed(std::move(socket), ListenAddress(address)); });
}

void LinkSetup::dialed(Result<Fd> socket, const ListenAddress& address) {
    const ListenAddress target = address;  // of the callback, which ends below
    const std::unique_ptr<AsyncConnect> ended = std::move(dialing_);
    if (!socket && ended->closed_early()) {
        // A crowded listener does so. If the peer has ended, the next attempt is refused.
        state_ = State::idle;
        retry_timer_ = door_.service().after(retry_us, [this, target] { dial(target); });
        return;
    }
    if (!socket)
        return fail(weft::internal::fail(socket.status(), "rank {} has no connection to rank {}: {}", door_.rank(),
                                         peer_, socket.status().sentence()));
    connection_ = std::make_unique<ControlConnection>(
        door_.service(), std::move(*socket), [this](uint32_t kind, ByteReader& content) { take_frame(kind, content); },
        [this](const Status& why) { take_end(why); });
    Status made = make_pairs();
    Offer own = offer();
    if (!made) own.rails.clear();  // the peer learns whose failure follows
    ByteWriter content;
    own.write(content);
    connection_->send(frame_hello, content);
    state_ = State::greeting;
    if (!made) fail(std::move(made));
}

bool LinkSetup::adopt(std::unique_ptr<ControlConnection>& connection, const Offer& offer) {
    const bool own_counts = (state_ == State::dialing || state_ == State::greeting) && door_.rank() < peer_;
    if (own_counts) return connection->send(frame_use_mine), false;
    if (offer.rank != peer_ || state_ == State::connecting || state_ == State::up || state_ == State::failed) {
        ByteWriter content;
        content.put_failure(failure_.ok() ? Failure{error::internal_state, "the link exists already"}
                                          : failure_.failure());
        return connection->send(frame_failed, content), false;
    }
    dialing_.reset();
    connection_ = std::move(connection);
    state_ = State::waiting;
    if (offer.rails.empty()) return true;  // the reason follows
    if (Status answered = answer(offer); !answered) fail(std::move(answered));
    return true;
}

Status LinkSetup::make_pairs() {
    if (lanes_) return ok();
    lanes_ = std::make_shared<std::vector<Lane>>();
    for (size_t rail = 0; rail < door_.ports().size(); ++rail) {
        const Port& port = door_.ports()[rail];
        auto gids = door_.devices().all()[port.device].context->gids(port.number);
        if (!gids) return gids.take_status();
        // The peer may choose, and must not choose another one than the user wants.
        const auto wanted = std::find_if(gids->begin(), gids->end(), [this](const PortGid& gid) {
            return gid.index == door_.settings().gids.index;
        });
        if (wanted != gids->end()) *gids = {PortGid(*wanted)};
        gids_.push_back(std::move(*gids));
        for (int place = 0; place < door_.settings().pairs_per_rail; ++place) WEFT_TRY(make_pair(rail, size_t(place)));
    }
    return ok();
}

Status LinkSetup::make_pair(size_t rail, size_t) {
    const Port& port = door_.ports()[rail];
    const Device& device = door_.devices().all()[port.device];
    const Settings& settings = door_.settings();
    const int most = device.context->facts().limits.pair_requests;
    QueuePairOptions options = settings.pair;
    options.send_requests = std::min(options.send_requests, most);
    options.receive_requests = std::min(options.receive_requests, most);
    Lane lane;
    lane.rail = rail;
    lane.device = port.device;
    lane.send_requests = options.send_requests;
    lane.receive_requests = options.receive_requests;
    auto queue = door_.queues().reserve(door_.devices(), port.device, options.send_requests + options.receive_requests);
    if (!queue) return queue.take_status();
    lane.queue = std::move(*queue);
    auto pair = QueuePair::make(*device.domain, *lane.queue, *lane.queue, options);
    if (!pair) return pair.take_status();
    lane.pair = std::move(*pair);
    int key = device.context->default_pkey_index(port.number);
    if (settings.partition_key) {
        auto found = device.context->pkey_index(port.number, *settings.partition_key);
        if (!found) return found.take_status();
        key = *found;
    }
    WEFT_TRY(lane.pair->init(port.number, key, rights_of_peer));
    const uint64_t id = RequestId::of(true, index_, lanes_->size(), 0);
    for (int left = options.receive_requests; left > 0; left -= receives_at_once)
        if (const int error = post_receives(*lane.pair, id, std::min(left, receives_at_once)))
            return weft::internal::fail(error::verbs_call, "{} refuses receive requests: {}", port.text(),
                                        errno_text(error));
    lane.own.host = fmt::format("rank {} on {}", door_.rank(), host_name());
    lane.own.device = port.name;
    lane.own.port = port.number;
    lane.own.link_layer = port.attributes.link_layer;
    lane.own.mtu = port.attributes.mtu;
    lane.own.lid = port.attributes.lid;
    lane.own.pair = lane.pair->number();
    lane.own.sequence = first_sequence();
    lanes_->push_back(std::move(lane));
    return ok();
}

Offer LinkSetup::offer() const {
    Offer offer{.token = door_.token(), .peer_token = peer_token_, .rank = door_.rank(), .rails = {}, .gids = {}};
    offer.rails.resize(gids_.size());
    for (const Lane& lane : *lanes_) {
        RailOffer& rail = offer.rails[lane.rail];
        rail.end = lane.own;
        rail.gids = gids_[lane.rail];
        rail.pairs.push_back({lane.own.pair, lane.own.sequence});
    }
    return offer;
}

// The answering side chooses the GIDs: a device may drop packets that come from another GID than its own choice.
Status LinkSetup::answer(const Offer& offer) {
    WEFT_TRY(make_pairs());
    Offer own = this->offer();
    std::vector<std::pair<size_t, size_t>> chosen;
    for (size_t rail = 0; rail < std::min(own.rails.size(), offer.rails.size()); ++rail) {
        const PathEnd &end = own.rails[rail].end, &peer = offer.rails[rail].end;
        auto gids = choose_gid_pair(own.rails[rail].gids, offer.rails[rail].gids, door_.settings().gids,
                                    fmt::format("{} {}:{}", end.host, end.device, end.port),
                                    fmt::format("{} {}:{}", peer.host, peer.device, peer.port));
        if (!gids) return gids.take_status();
        chosen.emplace_back(gids->own, gids->peer);
        own.gids.emplace_back(uint32_t(gids->own), uint32_t(gids->peer));
        WEFT_LOG_RANK(door_.rank(), trace, net, "{}:{} reaches {}:{}: {}", end.device, end.port, peer.device, peer.port,
                      gids->reason);
    }
    ByteWriter content;
    own.write(content);
    connection_->send(frame_answer, content);
    use_gids(offer, chosen);
    begin_receiving();
    return ok();
}

Status LinkSetup::accept_answer(const Offer& answer) {
    const size_t rails = std::min(gids_.size(), answer.rails.size());
    bool right = answer.gids.size() == rails && answer.rank == peer_;
    std::vector<std::pair<size_t, size_t>> chosen;
    for (size_t rail = 0; right && rail < rails; ++rail) {
        const auto [peers, own] = answer.gids[rail];
        right = peers < answer.rails[rail].gids.size() && own < gids_[rail].size();
        chosen.emplace_back(own, peers);
    }
    if (!right)
        return weft::internal::fail(error::internal_damaged,
                                    "rank {} answers rank {}'s offer of RDMA with numbers that "
                                    "cannot be right",
                                    peer_, door_.rank());
    use_gids(answer, chosen);
    begin_receiving();
    return ok();
}

// Keeps the queue pairs that both sides have.
void LinkSetup::use_gids(const Offer& peer, const std::vector<std::pair<size_t, size_t>>& gids) {
    std::vector<Lane> kept;
    std::vector<size_t> places(gids_.size());
    for (Lane& lane : *lanes_) {
        const size_t rail = lane.rail, place = places[rail]++;
        if (rail >= gids.size() || place >= peer.rails[rail].pairs.size()) continue;
        lane.own.gid = gids_[rail][gids[rail].first];
        lane.peer = peer.rails[rail].end;
        lane.peer.gid = peer.rails[rail].gids[gids[rail].second];
        lane.peer.pair = peer.rails[rail].pairs[place].number;
        lane.peer.sequence = peer.rails[rail].pairs[place].sequence;
        kept.push_back(std::move(lane));
    }
    *lanes_ = std::move(kept);
}

void LinkSetup::begin_receiving() {
    state_ = State::connecting;
    const Status started = run_detached("weft-rdma", [this, alive = alive_, lanes = lanes_,
                                                      path = door_.settings().path, dispatcher = door_.dispatcher()] {
        Status status;
        for (Lane& lane : *lanes) {
            status = lane.pair->receive_from(lane.own, lane.peer, path);
            if (status) status = lane.pair->begin_sending(lane.own, path);
            if (!status) break;
        }
        dispatcher->service().post([this, alive, lanes, failure = status.failure()] {
            if (*alive) received(failure.id == ErrorId::none ? ok() : Status(failure));
        });
    });
    if (!started) fail(started.copy());
}

void LinkSetup::received(const Status& status) {
    if (state_ != State::connecting) return;
    if (!status) return fail(status.copy());
    own_ready_ = true;
    connection_->send(frame_ready);
    if (peer_ready_) go_up();
}

void LinkSetup::go_up() {
    state_ = State::up;
    for (const Lane& lane : *lanes_)
        WEFT_LOG_RANK(door_.rank(), info, net, "links {} to {} with an MTU of {} bytes", described(lane.own),
                      described(lane.peer), mtu_bytes(path_mtu(lane.own, lane.peer)));
    door_.tell([index = index_, self = door_.rank(), peer = peer_, settings = door_.settings(),
                lanes = std::exchange(lanes_, nullptr)](Endpoint& endpoint) {
        endpoint.add(std::make_unique<Link>(index, self, peer, settings, std::move(*lanes)));
    });
    for (const Wanted& wanted : std::exchange(wanted_, {})) send_want(wanted);
}

void LinkSetup::want(uint32_t number, std::shared_ptr<Outgoing> outgoing) {
    const Wanted wanted{number, std::move(outgoing)};
    if (state_ == State::up) return send_want(wanted);
    wanted_.push_back(wanted);
    if (state_ == State::failed) fail_locally(failure_.copy());
}

void LinkSetup::send_want(const Wanted& wanted) {
    if (outgoing_.size() >= Immediate::connections_most) {
        door_.tell([outgoing = wanted.outgoing](Endpoint&) {
            outgoing->failure = weft::internal::fail(
                error::internal_state, "rank {} has {} connections to rank {} over verbs; there can be no more",
                outgoing->self, uint32_t(Immediate::connections_most), outgoing->peer);
        });
        return;
    }
    ByteWriter content;
    content.put(Want{.number = wanted.number,
                     .connection = uint32_t(outgoing_.size()),
                     .depth = int32_t(wanted.outgoing->depth),
                     .slot_bytes = wanted.outgoing->slot_bytes});
    outgoing_.push_back(wanted.outgoing);
    if (connection_) connection_->send(frame_want, content);
}

void LinkSetup::take_frame(uint32_t kind, ByteReader& content) {
    switch (kind) {
        case frame_use_mine:
            if (state_ == State::greeting) state_ = State::waiting;
            return;
        case frame_answer:
            if (state_ != State::greeting) return;
            if (const auto offer = Offer::read(content)) {
                if (Status accepted = accept_answer(*offer); !accepted) fail(std::move(accepted));
                return;
            }
            break;
        case frame_ready:
            peer_ready_ = true;
            if (own_ready_ && state_ == State::connecting) go_up();
            return;
        case frame_want: {
            const Want want = content.get<Want>();
            if (!content.at_end() || state_ != State::up || want.connection >= Immediate::connections_most) break;
            return take_want(want);
        }
        case frame_slots:
            if (auto slots = Slots::read(content);
                slots && slots->connection < outgoing_.size() && slots->keys.size() >= gids_.size())
                return take_slots(std::move(*slots));
            break;
        case frame_refused: return take_refusal(content);
        case frame_failed: {
            const Failure failure = content.get_failure();
            return fail_locally(Status(
                Failure{failure.id,
                        fmt::format("rank {} gave up its link to rank {}: {}", peer_, door_.rank(), failure.sentence),
                        {.rank = peer_, .peer = door_.rank()}}));
        }
        case frame_bye:
            return take_end(weft::internal::fail(error::verbs_broken, "rank {} has closed its connections", peer_));
        default: break;
    }
    fail(weft::internal::fail(error::internal_damaged,
                              "rank {} got a frame of kind {} from rank {} that it cannot read", door_.rank(), kind,
                              peer_)
             .about({.rank = peer_, .peer = door_.rank()}));
}

void LinkSetup::take_want(const Want& want) {
    const auto incoming = door_.listening(want.number);
    const bool right = incoming && incoming->peer == peer_ && int(incoming->depth) == want.depth &&
                       incoming->slot_bytes == want.slot_bytes;
    ByteWriter content;
    if (!right) {
        content.put(want.connection);
        content.put_failure(Failure{error::mismatch_algorithm,
                                    fmt::format("rank {} does not listen to rank {} over verbs with {} slots of {} "
                                                "bytes: the ranks chose differently",
                                                door_.rank(), peer_, want.depth, want.slot_bytes),
                                    {.rank = door_.rank(), .peer = peer_}});
        return connection_->send(frame_refused, content);
    }
    door_.tell([incoming, link = index_, connection = want.connection](Endpoint& endpoint) {
        incoming->connection = connection;
        if (Link* of = endpoint.link(link)) of->add(incoming);
    });
    Slots slots{.connection = want.connection, .address = uintptr_t(incoming->memory->data()), .keys = {}};
    for (const Port& port : door_.ports()) slots.keys.push_back(incoming->memory->registered().rkey(port.device));
    slots.write(content);
    connection_->send(frame_slots, content);
}

void LinkSetup::take_slots(Slots slots) {
    door_.tell([outgoing = outgoing_[slots.connection], link = index_, slots](Endpoint& endpoint) {
        outgoing->connection = slots.connection;
        outgoing->slots = slots;
        if (Link* of = endpoint.link(link)) of->add(outgoing);
    });
}

void LinkSetup::take_refusal(ByteReader& content) {
    const auto connection = content.get<uint32_t>();
    const Failure failure = content.get_failure();
    if (connection >= outgoing_.size()) return;
    door_.tell([outgoing = outgoing_[connection], failure](Endpoint&) { outgoing->failure = Status(failure); });
}

void LinkSetup::take_end(const Status& why) {
    const Status cause = why.copy();
    connection_.reset();
    if (state_ == State::failed) return;
    const Status ending =
        weft::internal::fail(error::verbs_broken, "the link from rank {} to rank {} over verbs ended: {}", peer_,
                             door_.rank(), cause.ok() ? "the peer closed it" : cause.sentence());
    if (state_ != State::up) return fail_locally(ending);
    door_.tell([link = index_, failure = ending.failure()](Endpoint& endpoint) {
        if (Link* of = endpoint.link(link)) of->peer_ended(Status(failure), now_us());
    });
}

void LinkSetup::send_failure(uint32_t kind, const Status& why) {
    if (!connection_) return;
    ByteWriter content;
    content.put_failure(why.failure());
    connection_->send(kind, content);
}

void LinkSetup::fail(Status why) {
    if (state_ == State::failed) return;
    send_failure(frame_failed, why);
    fail_locally(why);
}

// The socket stays open: the peer reads the reason there.
void LinkSetup::fail_locally(const Status& why) {
    if (failure_.ok()) failure_ = why.copy();
    state_ = State::failed;
    dialing_.reset();
    std::vector<std::shared_ptr<Outgoing>> senders = outgoing_;
    for (const Wanted& wanted : std::exchange(wanted_, {})) senders.push_back(wanted.outgoing);
    door_.tell([link = index_, failure = failure_.failure(), senders = std::move(senders),
                receivers = door_.listening_to(peer_)](Endpoint& endpoint) {
        if (Link* of = endpoint.link(link)) of->fail(Status(failure));
        for (const auto& each : senders)
            if (each->failure.ok()) each->failure = Status(failure);
        for (const auto& each : receivers)
            if (each->link == nullptr && each->failure.ok()) each->failure = Status(failure);
    });
}

void LinkSetup::part() {
    if (!connection_) return;
    connection_->send(frame_bye);
    connection_->part();
}

}  // namespace weft::internal::verbs
