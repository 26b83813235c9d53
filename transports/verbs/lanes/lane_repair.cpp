#include "transports/verbs/lanes/lane_repair.hpp"

#include <algorithm>
#include <utility>

#include "src/base/clock.hpp"
#include "src/base/log.hpp"
#include "src/base/thread.hpp"
#include "transports/verbs/link_table.hpp"

namespace weft::internal::verbs {

namespace {

constexpr int64_t first_wait_us = 20'000, longest_wait_us = 2'000'000;
// A lane that works so long has earned a quick repair.
constexpr int64_t steady_us = 10'000'000;
constexpr int port_active_state = 4;

}  // namespace

LaneRepair::LaneRepair(Site& site, uint32_t link, int peer, Send send)
    : site_(site), link_(link), peer_(peer), send_(std::move(send)) {}

LaneRepair::~LaneRepair() { end(); }

void LaneRepair::end() {
    *alive_ = false;
    for (Place& place : places_) site_.service().cancel(place.timer);
    places_.clear();
}

void LaneRepair::begin(const std::vector<Lane>& lanes, const std::vector<size_t>& rails, const PathOptions& path) {
    path_ = path;
    places_.resize(lanes.size());
    for (size_t i = 0; i < lanes.size(); ++i) {
        places_[i].port = rails[lanes[i].rail];
        places_[i].rail = lanes[i].rail;
        places_[i].used_since_us = now_us();
        places_[i].peer_ready = true;
        if (lanes[i].pair) continue;
        lost(i, 0, lanes[i].queue);
        places_[i].misses = 1;  // the best GIDs did not connect
    }
}

void LaneRepair::take_notice(const LaneNotice& notice) {
    const LaneId id = notice.report.id;
    if (id.lane >= places_.size()) return;
    if (notice.parted) return lost(id.lane, id.generation, notice.queue);
    ByteWriter content;
    notice.report.write(content);
    send_(frame_lane_report, content);
}

void LaneRepair::lost(size_t place, uint32_t generation, std::shared_ptr<CompletionQueue> queue) {
    Place& at = places_[place];
    if (at.state == State::used && now_us() - at.used_since_us > steady_us)
        at.wait_us = 0, at.misses = 0;
    else if (at.state == State::used && (at.misses > 0 || !at.peer_ready))
        at.missed();  // these GIDs connect here, and carry nothing
    at.state = State::lost;
    at.generation = generation;
    at.queue = std::move(queue);
    at.making.reset();
    at.peer_ready = false;
    if (std::exchange(at.hurried, false) && site_.rank < peer_) return try_now(place);
    retry_later(place);
}

// Only the lower rank begins.
void LaneRepair::retry_later(size_t place) {
    Place& at = places_[place];
    if (site_.rank > peer_) return;
    at.wait_us = std::clamp(2 * at.wait_us, first_wait_us, longest_wait_us);
    site_.service().cancel(at.timer);
    at.timer = site_.service().after(at.wait_us, [this, place] { try_now(place); });
}

void LaneRepair::take_event(size_t device, const Event& event) {
    if (event.type == event::port_active || event.type == event::gid_change) return port_active(device, event.port);
    if (event.type != event::port_error && event.type != event::device_fatal) return;
    site_.tell([link = link_, device, port = event.port, text = event.text()](LinkTable& table) {
        // A port without a working substitute is left to the retries.
        if (Link* of = table.link(link))
            of->lose_lanes(of->recovery().replaceable(device, port), fail(error::verbs_device, "{}", text));
    });
}

void LaneRepair::port_active(size_t device, int port) {
    for (size_t place = 0; place < places_.size(); ++place) {
        const Port& own = site_.ports[places_[place].port];
        if (own.device != device || own.number != port) continue;
        // The lower rank begins, and both have a probe.
        send_id(frame_lane_hurry, next_of(place));
        hurry(place);
    }
}

// Neither a wait nor a probe that is repeated delays the next try.
void LaneRepair::hurry(size_t place) {
    Place& at = places_[place];
    at.wait_us = 0;
    if (at.state == State::lost && site_.rank < peer_) return try_now(place);
    at.hurried = true;
    if (at.state != State::used) return;
    site_.tell([link = link_, id = LaneId{uint32_t(place), at.generation}](LinkTable& table) {
        if (Link* of = table.link(link))
            of->lose_lanes(of->recovery().probing(id), fail(error::verbs_device, "a port is active again"));
    });
}

void LaneRepair::try_now(size_t place) {
    Place& at = places_[place];
    if (at.state != State::lost) return;
    if (const Status made = make(place); !made) {
        WEFT_LOG_RANK(site_.rank, trace, net, "cannot make a lane to rank {} yet: {}", peer_, made.sentence());
        return retry_later(place);
    }
    at.state = State::offered;
    const LaneOffer offer{
        .id = next_of(place), .port = at.own, .pair = at.making->numbers(), .probe = probe_target(at.making->device)};
    ByteWriter content;
    offer.write(content);
    send_(frame_lane_offer, content);
}

// The port may have other GIDs than before.
Status LaneRepair::make(size_t place) {
    Place& at = places_[place];
    const Port& port = site_.ports[at.port];
    const auto attributes = site_.devices.all()[port.device].context->port(port.number);
    if (!attributes) return attributes.status().copy();
    if (attributes->state != port_active_state) return fail(error::verbs_device, "{} is down", port.text());
    auto offer = port_offer(site_, at.port);
    if (!offer) return offer.take_status();
    at.own = std::move(*offer);
    if (at.queue && at.queue->failed()) at.queue.reset();
    auto lane = make_lane(site_, at.port, at.own, at.queue);
    if (!lane) return lane.take_status();
    at.making = std::make_shared<Lane>(std::move(*lane));
    at.making->rail = at.rail;
    at.making->generation = at.generation + 1;
    at.queue = at.making->queue;
    return ok();
}

bool LaneRepair::take_frame(uint32_t kind, ByteReader& content) {
    if (kind == frame_lane_report) {
        auto report = LaneReport::read(content);
        if (!report || report->id.lane >= places_.size()) return false;
        take_report(std::move(*report));
        return true;
    }
    if (kind == frame_lane_offer || kind == frame_lane_answer) {
        const auto offer = LaneOffer::read(content);
        if (!offer || offer->id.lane >= places_.size()) return false;
        if (kind == frame_lane_answer) return take_answer(*offer);
        take_offer(*offer);
        return true;
    }
    if (kind != frame_lane_refused && kind != frame_lane_ready && kind != frame_lane_hurry) return false;
    const auto id = content.get<LaneId>();
    if (!content.at_end() || id.lane >= places_.size()) return false;
    Place& at = places_[id.lane];
    if (kind == frame_lane_hurry) {
        hurry(id.lane);
    } else if (kind == frame_lane_refused && at.state == State::offered && id == next_of(id.lane)) {
        at.missed();
        lost(id.lane, at.generation, at.queue);
    } else if (kind == frame_lane_ready) {
        const bool awaited = at.state == State::connecting && id == next_of(id.lane);
        const bool installed = at.state == State::used && id.generation == at.generation;
        at.peer_ready = at.peer_ready || awaited || installed;
        if (installed)
            site_.tell([link = link_, id](LinkTable& table) {
                if (Link* of = table.link(link)) of->enable(id);
            });
    }
    return true;
}

void LaneRepair::take_offer(const LaneOffer& offer) {
    const size_t place = offer.id.lane;
    const bool can = places_[place].state == State::lost && offer.id == next_of(place) && site_.rank > peer_;
    const Status answered = can ? answer(place, offer) : fail(error::verbs_device, "not now");
    if (answered) return;
    places_[place].making.reset();
    send_id(frame_lane_refused, offer.id);
}

Status LaneRepair::answer(size_t place, const LaneOffer& offer) {
    WEFT_TRY(make(place));
    Place& at = places_[place];
    auto gids = rank_gid_pairs(at.own.gids, offer.port.gids, site_.settings.gid_rules(at.own.gids));
    if (gids.empty()) return fail(error::verbs_path, "no GIDs fit");
    if (!gids[0].same_subnet && at.own.end.link_layer == link_ethernet)
        gids = rank_gid_pairs(at.own.gids, offer.port.gids, with_routes(site_.settings).gid_rules(at.own.gids));
    const GidPair& chosen = gids[at.misses % gids.size()];
    at.answer = {.id = offer.id,
                 .port = at.own,
                 .pair = {},
                 .gid = uint32_t(chosen.own),
                 .peer_gid = uint32_t(chosen.peer),
                 .probe = probe_target(at.making->device)};
    WEFT_TRY(prepare_lane(*at.making, link_, place));
    connect(place, offer, chosen.own, chosen.peer);
    return ok();
}

bool LaneRepair::take_answer(const LaneOffer& answer) {
    const size_t place = answer.id.lane;
    Place& at = places_[place];
    if (at.state != State::offered || answer.id != next_of(place)) return false;
    if (answer.gid >= answer.port.gids.size() || answer.peer_gid >= at.own.gids.size()) return false;
    at.state = State::connecting;
    if (const Status prepared = prepare_lane(*at.making, link_, place); !prepared)
        connected(place, answer.id.generation, prepared);
    else
        connect(place, answer, answer.peer_gid, answer.gid);
    return true;
}

void LaneRepair::connect(size_t place, const LaneOffer& peer, size_t own_gid, size_t peer_gid) {
    Place& at = places_[place];
    at.state = State::connecting;
    Lane& lane = *at.making;
    lane.own.gid = at.own.gids[own_gid];
    lane.peer = peer.port.end;
    lane.peer_device = peer.port.device;
    lane.peer.gid = peer.port.gids[peer_gid];
    lane.set_peer(peer.pair);
    lane.probe.to = peer.probe;
    const Status started = run_detached("weft-rdma", [this, alive = alive_, place, making = at.making, path = path_,
                                                      dispatcher = site_.dispatcher]() mutable {
        const Status status = connect_lane(*making, path);
        // The queue pair ends on the service thread, too.
        dispatcher->service().post([this, alive, place, making = std::move(making), failure = status.failure()] {
            if (*alive) connected(place, making->generation, failure.id == ErrorId::none ? ok() : Status(failure));
        });
    });
    if (!started) connected(place, next_of(place).generation, started);
}

void LaneRepair::connected(size_t place, uint32_t generation, const Status& status) {
    Place& at = places_[place];
    if (at.state != State::connecting || generation != at.generation + 1) return;
    const LaneId id = next_of(place);
    if (!status) {
        at.missed();
        WEFT_LOG_RANK(site_.rank, trace, net, "cannot connect a lane to rank {} yet: {}", peer_, status.sentence());
        if (site_.rank > peer_) {  // the peer has not begun
            send_id(frame_lane_refused, id);
            return lost(place, at.generation, at.queue);
        }
        at.state = State::ending;
        ByteWriter content;
        LaneReport{.id = id, .cause = status.failure(), .connections = {}}.write(content);
        return send_(frame_lane_report, content);
    }
    if (site_.rank > peer_) {
        at.answer.pair = at.making->numbers();
        ByteWriter content;
        at.answer.write(content);
        send_(frame_lane_answer, content);
    }
    // The driving thread has it before the peer may send.
    at.state = State::used;
    at.generation = id.generation;
    at.used_since_us = now_us();
    site_.tell([link = link_, place, lane = std::exchange(at.making, nullptr)](LinkTable& table) {
        table.install(link, place, std::move(*lane));
    });
    send_id(frame_lane_ready, id);
    if (!at.peer_ready) return;
    site_.tell([link = link_, id](LinkTable& table) {
        if (Link* of = table.link(link)) of->enable(id);
    });
}

// Of a lane that is not made yet, nothing has arrived.
void LaneRepair::take_report(LaneReport report) {
    const size_t place = report.id.lane;
    Place& at = places_[place];
    const bool in_making = (at.state == State::connecting || at.state == State::ending) && report.id == next_of(place);
    if (in_making) {
        if (at.state == State::connecting) {
            at.missed();
            ByteWriter content;
            LaneReport{.id = report.id, .cause = report.cause, .connections = {}}.write(content);
            send_(frame_lane_report, content);
        }
        return lost(place, report.id.generation, at.queue);
    }
    site_.tell([link = link_, report = std::move(report)](LinkTable& table) {
        if (Link* of = table.link(link)) of->take_report(report);
    });
}

void LaneRepair::send_id(uint32_t kind, LaneId id) {
    ByteWriter content;
    content.put(id);
    send_(kind, content);
}

}  // namespace weft::internal::verbs
