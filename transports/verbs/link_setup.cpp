#include "transports/verbs/link_setup.hpp"

#include "src/base/clock.hpp"
#include "transports/verbs/link_table.hpp"

namespace weft::internal::verbs {

namespace {

constexpr int64_t retry_us = 20'000;

}  // namespace

LinkSetup::LinkSetup(Site& site, uint32_t index, uint64_t peer_token, int peer)
    : site_(site),
      index_(index),
      peer_token_(peer_token),
      peer_(peer),
      repair_(site, index, peer, [this](uint32_t kind, const ByteWriter& content) { send(kind, content); }) {}

LinkSetup::~LinkSetup() {
    *alive_ = false;
    site_.service().cancel(retry_timer_);
}

void LinkSetup::dial(const ListenAddress& address) {
    if (state_ != State::idle) return;
    state_ = State::dialing;
    dialing_ = std::make_unique<AsyncConnect>(
        site_.service(), site_.identity, net::Purpose{net::rdma, 0, address.token}, address.target(), address.addresses,
        [this, address](Result<Fd> socket) { dialed(std::move(socket), ListenAddress(address)); });
}

void LinkSetup::dialed(Result<Fd> socket, const ListenAddress& address) {
    const ListenAddress target = address;  // of the callback, which ends below
    const std::unique_ptr<AsyncConnect> ended = std::move(dialing_);
    if (!socket && ended->closed_early()) {
        // A crowded listener does so. If the peer has ended, the next attempt is refused.
        state_ = State::idle;
        retry_timer_ = site_.service().after(retry_us, [this, target] { dial(target); });
        return;
    }
    if (!socket)
        return fail(weft::internal::fail(socket.status(), "rank {} has no connection to rank {}: {}", site_.rank, peer_,
                                         socket.status().sentence()));
    connection_ = std::make_unique<ControlConnection>(
        site_.service(), std::move(*socket), [this](uint32_t kind, ByteReader& content) { take_frame(kind, content); },
        [this](const Status& why) { take_end(why); });
    Status made = new_lanes_.read_ports(site_);
    Offer own = new_lanes_.offer(site_, peer_token_);
    if (!made) own.ports.clear();  // the peer learns whose failure follows
    ByteWriter content;
    own.write(content);
    connection_->send(frame_hello, content);
    state_ = State::greeting;
    if (!made) fail(std::move(made));
}

bool LinkSetup::adopt(std::unique_ptr<ControlConnection>& connection, const Offer& offer) {
    const bool own_counts = (state_ == State::dialing || state_ == State::greeting) && site_.rank < peer_;
    if (own_counts) return connection->send(frame_use_mine), false;
    if (offer.rank != peer_ || state_ == State::pairing || state_ == State::connecting || state_ == State::up ||
        state_ == State::failed) {
        ByteWriter content;
        content.put_failure(failure_.ok() ? Failure{error::internal_state, "the link exists already"}
                                          : failure_.failure());
        return connection->send(frame_failed, content), false;
    }
    dialing_.reset();
    connection_ = std::move(connection);
    state_ = State::waiting;
    if (offer.ports.empty()) return true;  // the reason follows
    if (Status answered = answer(offer); !answered) fail(std::move(answered));
    return true;
}

// The answering side chooses the ports, because both sides' tables are known here, and the GIDs: a device may drop
// packets that come from another GID than its own choice.
Status LinkSetup::answer(const Offer& offer) {
    WEFT_TRY(new_lanes_.read_ports(site_));
    Offer own = new_lanes_.offer(site_, peer_token_);
    WEFT_TRY(new_lanes_.choose(site_, offer, own));
    ByteWriter content;
    own.write(content);
    connection_->send(frame_answer, content);
    state_ = State::pairing;
    return ok();
}

Status LinkSetup::accept_answer(const Offer& answer) {
    WEFT_TRY(new_lanes_.take_answer(site_, answer));
    WEFT_TRY(new_lanes_.pair_with(answer.pairs, index_));
    return begin_connecting();
}

Status LinkSetup::begin_connecting() {
    state_ = State::connecting;
    return new_lanes_.connect(site_, peer_, alive_, [this](const Result<ConnectedLanes>& lanes) { connected(lanes); });
}

// A lane that is not connected is made later, with other GIDs if there are any.
void LinkSetup::connected(const Result<ConnectedLanes>& connected) {
    if (state_ != State::connecting) return;
    if (!connected) return fail(connected.status().copy());
    if (!new_lanes_.chose()) {
        ByteWriter pairs;
        write_pairs(pairs, new_lanes_.pairs());
        connection_->send(frame_pairs, pairs);
    }
    ByteWriter content;
    connected->write(content);
    connection_->send(frame_ready, content);
    if (new_lanes_.own_ready(*connected)) go_up();
}

void LinkSetup::go_up() {
    const Failure none = new_lanes_.settle(site_, peer_).failure();
    state_ = State::up;
    ++site_.links_to[peer_];
    Settings settings = site_.settings;
    settings.path = new_lanes_.path(site_);
    repair_.begin(new_lanes_.lanes(), new_lanes_.rails(), settings.path);
    site_.tell([index = index_, self = site_.rank, peer = peer_, rails = new_lanes_.rails_used(), settings,
                flushes = new_lanes_.flushes(), made = new_lanes_.take(), none](LinkTable& table) {
        auto link = std::make_unique<Link>(index, self, peer, rails, settings, std::move(*made), flushes);
        if (none.id != ErrorId::none) link->recovery().await_lanes(Status(none), now_us());
        table.add(std::move(link));
    });
    for (const Wanted& wanted : std::exchange(wanted_, {})) send_want(wanted);
}

void LinkSetup::send(uint32_t kind, const ByteWriter& content) {
    if (connection_) connection_->send(kind, content);
}

void LinkSetup::take_notice(const LaneNotice& notice) {
    if (state_ == State::up && connection_) repair_.take_notice(notice);
}

void LinkSetup::take_event(size_t device, const Event& event) {
    if (state_ == State::up) repair_.take_event(device, event);
}

void LinkSetup::want(uint32_t number, std::shared_ptr<Outgoing> outgoing) {
    const Wanted wanted{number, std::move(outgoing)};
    if (state_ == State::up) return send_want(wanted);
    wanted_.push_back(wanted);
    if (state_ == State::failed) fail_locally(failure_.copy());
}

void LinkSetup::send_want(const Wanted& wanted) {
    if (!connection_)  // the peer has ended
        return site_.tell([outgoing = wanted.outgoing, failure = failure_.failure()](LinkTable&) {
            outgoing->failure = Status(failure);
        });
    if (outgoing_.size() >= Immediate::connections_most)
        return site_.tell([outgoing = wanted.outgoing](LinkTable&) {
            outgoing->failure = weft::internal::fail(
                error::internal_state, "rank {} has {} connections to rank {} over verbs; there can be no more",
                outgoing->shape.self, uint32_t(Immediate::connections_most), outgoing->shape.peer);
        });
    Want want{.number = wanted.number,
              .connection = uint32_t(outgoing_.size()),
              .depth = int32_t(wanted.outgoing->shape.depth),
              .slot_bytes = wanted.outgoing->shape.slot_bytes};
    if (const OfferRing* ring = wanted.outgoing->offers.get())
        want.offers = ring->area(new_lanes_.keys_of(site_, ring->registered()));
    ByteWriter content;
    want.write(content);
    outgoing_.push_back(wanted.outgoing);
    connection_->send(frame_want, content);
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
        case frame_pairs:
            if (state_ != State::pairing) return;
            if (const auto pairs = read_pairs(content); pairs && content.at_end()) {
                Status begun = new_lanes_.pair_with(*pairs, index_);
                if (begun) begun = begin_connecting();
                if (!begun) fail(std::move(begun));
                return;
            }
            break;
        case frame_ready:
            if (const auto ready = ConnectedLanes::read(content); content.at_end()) {
                if (new_lanes_.peer_ready(ready) && state_ == State::connecting) go_up();
                return;
            }
            break;
        case frame_want:
            if (const auto want = Want::read(content);
                want && state_ == State::up && want->connection < Immediate::connections_most)
                return take_want(*want);
            break;
        case frame_slots:
            if (auto slots = Slots::read(content); slots && slots->connection < outgoing_.size() &&
                                                   slots->headers.keys.size() >= new_lanes_.rails().size() &&
                                                   slots->data.keys.size() >= new_lanes_.rails().size())
                return take_slots(std::move(*slots));
            break;
        case frame_refused: return take_refusal(content);
        case frame_failed: {
            const Failure failure = content.get_failure();
            return fail_locally(Status(
                Failure{failure.id,
                        fmt::format("rank {} gave up its link to rank {}: {}", peer_, site_.rank, failure.sentence),
                        {.rank = peer_, .peer = site_.rank}}));
        }
        case frame_bye:
            return take_end(weft::internal::fail(error::verbs_broken, "rank {} has closed its connections", peer_));
        default:
            if (state_ == State::up ? repair_.take_frame(kind, content) : state_ == State::failed) return;
    }
    fail(weft::internal::fail(error::internal_damaged,
                              "rank {} got a frame of kind {} from rank {} that it cannot read", site_.rank, kind,
                              peer_)
             .about({.rank = peer_, .peer = site_.rank}));
}

void LinkSetup::take_want(const Want& want) {
    const auto place = site_.listening.find(want.number);
    const auto incoming = place == site_.listening.end() ? nullptr : place->second;
    const bool right = incoming && incoming->shape.peer == peer_ && int(incoming->shape.depth) == want.depth &&
                       incoming->shape.slot_bytes == want.slot_bytes;
    ByteWriter content;
    if (!right) {
        content.put(want.connection);
        content.put_failure(Failure{error::mismatch_algorithm,
                                    fmt::format("rank {} does not listen to rank {} over verbs with {} slots of {} "
                                                "bytes: the ranks chose differently",
                                                site_.rank, peer_, want.depth, want.slot_bytes),
                                    {.rank = site_.rank, .peer = peer_}});
        return connection_->send(frame_refused, content);
    }
    site_.tell([incoming, link = index_, connection = want.connection, ring = want.offers](LinkTable& table) {
        incoming->connection = connection;
        incoming->offers.open(ring);
        if (Link* of = table.link(link)) of->add(incoming);
    });
    Slots slots{.connection = want.connection, .headers = incoming->headers(), .data = incoming->slots()};
    slots.headers.keys = new_lanes_.keys_of(site_, incoming->memory->registered());
    slots.data.keys = new_lanes_.keys_of(site_, incoming->slot_memory());
    slots.write(content);
    connection_->send(frame_slots, content);
}

void LinkSetup::take_slots(Slots slots) {
    site_.tell([outgoing = outgoing_[slots.connection], link = index_, slots](LinkTable& table) {
        outgoing->slots = slots;
        if (Link* of = table.link(link)) of->add(outgoing);
    });
}

void LinkSetup::take_refusal(ByteReader& content) {
    const auto connection = content.get<uint32_t>();
    const Failure failure = content.get_failure();
    if (connection >= outgoing_.size()) return;
    site_.tell([outgoing = outgoing_[connection], failure](LinkTable&) { outgoing->failure = Status(failure); });
}

void LinkSetup::take_end(const Status& why) {
    const Status cause = why.copy();
    connection_.reset();
    repair_.end();
    if (state_ == State::failed) return;
    const Status ending =
        weft::internal::fail(error::verbs_broken, "the link from rank {} to rank {} over verbs ended: {}", peer_,
                             site_.rank, cause.ok() ? "the peer closed it" : cause.sentence());
    if (state_ != State::up) return fail_locally(ending);
    failure_ = ending.copy();
    // The peer has no other endpoint whose senders could still come.
    const bool last = --site_.links_to[peer_] == 0;
    site_.tell([link = index_, failure = ending.failure(),
                receivers = last ? site_.listening_to(peer_) : Receivers()](LinkTable& table) {
        if (Link* of = table.link(link)) of->peer_ended(Status(failure), now_us());
        fail_unattached(receivers, failure);
    });
}

void LinkSetup::send_failure(uint32_t kind, const Status& why) {
    ByteWriter content;
    content.put_failure(why.failure());
    send(kind, content);
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
    repair_.end();
    dialing_.reset();
    std::vector<std::shared_ptr<Outgoing>> senders = outgoing_;
    for (const Wanted& wanted : std::exchange(wanted_, {})) senders.push_back(wanted.outgoing);
    site_.tell([link = index_, failure = failure_.failure(), senders = std::move(senders),
                receivers = site_.listening_to(peer_)](LinkTable& table) {
        if (Link* of = table.link(link)) of->fail(Status(failure));
        for (const auto& each : senders)
            if (each->failure.ok()) each->failure = Status(failure);
        fail_unattached(receivers, failure);
    });
}

void LinkSetup::part() {
    if (!connection_) return;
    connection_->send(frame_bye);
    connection_->part();
}

}  // namespace weft::internal::verbs
