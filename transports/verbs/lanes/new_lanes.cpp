#include "transports/verbs/lanes/new_lanes.hpp"

#include <unistd.h>

#include <algorithm>

#include "src/base/log.hpp"
#include "src/base/thread.hpp"
#include "src/drivers/verbs/gid_check.hpp"

namespace weft::internal::verbs {

namespace {

constexpr int rights_of_peer = access::local_write | access::remote_write | access::remote_read;
// Lanes have 8 bits in the id of a request, and one in frame_ready.
constexpr size_t rails_most = 8, pairs_most = 8;

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

Status damaged(const Site& site, int peer) {
    return fail(error::internal_damaged, "rank {} answers rank {}'s offer of RDMA with numbers that cannot be right",
                peer, site.rank);
}

}  // namespace

Result<PortOffer> port_offer(const Site& site, size_t place) {
    const Port& port = site.ports[place];
    const Device& device = site.devices.all()[port.device];
    const Context& context = *device.context;
    auto gids = context.gids(port.number);
    if (!gids) return gids.take_status();
    const auto attributes = context.port(port.number);
    if (!attributes) return attributes.status().copy();
    // The peer may choose, and must not choose another one than the user wants.
    const int index = site.settings.gid_rules(*gids).index;
    const auto wanted =
        std::find_if(gids->begin(), gids->end(), [index](const PortGid& gid) { return gid.index == index; });
    if (wanted != gids->end()) *gids = {PortGid(*wanted)};
    // Of other network namespaces only the kernel knows which GIDs it can send with, and only this host's kernel.
    check_invisible_gids(*device.domain, port.number, *gids);
    std::erase_if(*gids, [](const PortGid& gid) { return gid.refused != 0; });
    PortOffer offer;
    offer.device = uint32_t(port.device);
    offer.end.host = fmt::format("rank {} on {}", site.rank, host_name());
    offer.end.device = port.name;
    offer.end.port = port.number;
    offer.end.link_layer = attributes->link_layer;
    offer.end.mtu = attributes->mtu;
    offer.end.lid = attributes->lid;
    offer.end.needs_grh = (attributes->flags & grh_required) != 0;
    offer.gids = std::move(*gids);
    offer.mbps = std::max(0, context.mbps(*attributes, port.number));
    if (const DeviceWish* wish = site.settings.devices.wish(port.name, port.number)) offer.rail = wish->rail;
    return offer;
}

static Status make_pair(const Site& site, const Port& port, const QueuePairOptions& options, Lane& lane) {
    const Device& device = site.devices.all()[port.device];
    auto pair = QueuePair::make(*device.domain, *lane.queue, *lane.queue, options);
    if (!pair) return pair.take_status();
    lane.pair = std::move(*pair);
    auto key = site.settings.partition_key.choose(device.context->pkeys(port.number), port.text());
    if (!key) return key.take_status();
    WEFT_TRY(lane.pair->init(port.number, *key, rights_of_peer));
    lane.own.pair = lane.pair->number();
    lane.own.sequence = first_sequence();
    if (site.settings.ece) lane.own.ece = lane.pair->ece();
    return ok();
}

Result<Lane> make_lane(Site& site, size_t place, const PortOffer& offer, std::shared_ptr<CompletionQueue> queue) {
    const Port& port = site.ports[place];
    const Device& device = site.devices.all()[port.device];
    const Settings& settings = site.settings;
    const int most = device.context->facts().limits.pair_requests;
    QueuePairOptions options = settings.pair;
    options.send_requests = std::min(options.send_requests, most);
    options.receive_requests = std::min(options.receive_requests, most);
    Lane lane;
    lane.device = port.device;
    lane.probe.from = device.probe.get();
    lane.ring.resize(size_t(options.send_requests));
    lane.receives.requests = options.receive_requests;
    const bool reserved = !queue;
    if (reserved) {
        auto made = site.queues.reserve(site.devices, port.device, options.send_requests + options.receive_requests);
        if (!made) return made.take_status();
        queue = std::move(*made);
    }
    lane.queue = std::move(queue);
    lane.own = offer.end;
    if (Status made = make_pair(site, port, options, lane); !made) {
        // Otherwise each retry would reserve more, until the device has no queue left.
        if (reserved) site.queues.give_back(lane.queue, options.send_requests + options.receive_requests);
        return made;
    }
    return lane;
}

Status prepare_lane(Lane& lane, uint32_t link, size_t place) {
    const uint64_t id = RequestId::of(true, link, place, 0);
    for (int left = lane.receives.requests; left > 0; left -= receives_at_once)
        if (const int error = post_receives(*lane.pair, id, std::min(left, receives_at_once)))
            return fail(error::verbs_call, "{}:{} refuses receive requests: {}", lane.own.device, lane.own.port,
                        errno_text(error));
    return ok();
}

Status connect_lane(Lane& lane, const PathOptions& path) {
    // Devices without common extensions do without.
    if (lane.own.ece && !(lane.peer.ece && lane.pair->set_ece(*lane.peer.ece))) lane.own.ece.reset();
    WEFT_TRY(lane.pair->receive_from(lane.own, lane.peer, path));
    if (lane.own.ece) lane.own.ece = lane.pair->ece();
    return lane.pair->begin_sending(lane.own, path);
}

Status NewLanes::read_ports(const Site& site) {
    ports_.clear();
    for (size_t port = 0; port < site.ports.size(); ++port) {
        auto offer = port_offer(site, port);
        if (!offer) return offer.take_status();
        ports_.push_back(std::move(*offer));
    }
    return ok();
}

Offer NewLanes::offer(const Site& site, uint64_t peer_token) const {
    return {.token = site.token,
            .peer_token = peer_token,
            .rank = site.rank,
            .rails_used = site.settings.rails,
            .service_level = site.settings.path.service_level,
            .traffic_class = site.settings.path.traffic_class,
            .ports = ports_,
            .rails = {},
            .pairs = {}};
}

Status NewLanes::make_flush(const Site& site, const Port& port, const PathEnd& own) {
    const Device& device = site.devices.all()[port.device];
    auto key = site.settings.partition_key.choose(device.context->pkeys(port.number), port.text());
    if (!key) return key.take_status();
    auto flush = FlushPair::make(device, port.number, *key);
    if (!flush) return flush.take_status();
    flushes_->add(std::move(*flush), port.device, own);
    return ok();
}

Status NewLanes::make_rail(Site& site, size_t port, const PathEnd& own, const PathEnd& peer, uint32_t peer_device,
                           size_t pairs) {
    for (size_t each = 0; each < pairs; ++each) {
        auto lane = make_lane(site, port, ports_[port], nullptr);
        if (!lane) return lane.take_status();
        lane->rail = rails_.size();
        lane->own.gid = own.gid;
        lane->peer = peer;
        lane->peer_device = peer_device;
        lanes_->push_back(std::move(*lane));
    }
    rails_.push_back(port);
    return site.flushes ? make_flush(site, site.ports[port], own) : ok();
}

// One rail more than both sides use is in reserve.
Status NewLanes::choose(Site& site, const Offer& peer, Offer& answer) {
    chose_ = true;
    agree_on_classes(site, peer);
    rails_used_ = std::min<size_t>({size_t(site.settings.rails), size_t(peer.rails_used), rails_most});
    auto rails = choose_routed_rails(ports_, peer.ports, site.settings, std::max<size_t>(rails_used_, 2));
    if (!rails) return rails.take_status();
    for (const RailChoice& rail : *rails) {
        PathEnd own = ports_[rail.own].end, peers = peer.ports[rail.peer].end;
        own.gid = ports_[rail.own].gids[rail.gids.own];
        peers.gid = peer.ports[rail.peer].gids[rail.gids.peer];
        WEFT_TRY(make_rail(site, rail.own, own, peers, peer.ports[rail.peer].device,
                           size_t(site.settings.pairs_on(own.link_layer))));
        answer.rails.push_back(
            {uint32_t(rail.own), uint32_t(rail.peer), uint32_t(rail.gids.own), uint32_t(rail.gids.peer)});
        WEFT_LOG_RANK(site.rank, trace, net, "{}:{} reaches {}:{}: {}", own.device, own.port, peers.device, peers.port,
                      rail.gids.reason);
    }
    answer.pairs = pairs();
    return ok();
}

// Switches that keep one class lossless drop the packets, and the acknowledgements, of another one.
void NewLanes::agree_on_classes(const Site& site, const Offer& peer) {
    const PathOptions& own = site.settings.path;
    if (peer.rank > site.rank) return;
    service_level_ = peer.service_level;
    traffic_class_ = peer.traffic_class;
    if (own.service_level != service_level_ || own.traffic_class != traffic_class_)
        WEFT_LOG_RANK(site.rank, warn, net,
                      "takes service level {} and traffic class {} from rank {}, in place of {} and {}: set WEFT_IB_SL "
                      "and WEFT_IB_TRAFFIC_CLASS to the same values on all ranks",
                      service_level_, traffic_class_, peer.rank, own.service_level, own.traffic_class);
}

PathOptions NewLanes::path(const Site& site) const {
    PathOptions path = site.settings.path_with(int(rails_.size()));
    if (service_level_ >= 0) path.service_level = service_level_;
    if (traffic_class_ >= 0) path.traffic_class = traffic_class_;
    return path;
}

Status NewLanes::take_answer(Site& site, const Offer& answer) {
    if (answer.rails.empty() || answer.rails.size() > rails_most || answer.pairs.size() != answer.rails.size())
        return damaged(site, answer.rank);
    agree_on_classes(site, answer);
    rails_used_ = std::min<size_t>({size_t(site.settings.rails), size_t(answer.rails_used), rails_most});
    for (size_t place = 0; place < answer.rails.size(); ++place) {
        const Offer::Rail& rail = answer.rails[place];
        if (rail.port >= answer.ports.size() || rail.peer_port >= ports_.size() ||
            rail.gid >= answer.ports[rail.port].gids.size() || rail.peer_gid >= ports_[rail.peer_port].gids.size() ||
            answer.pairs[place].empty() || answer.pairs[place].size() > pairs_most)
            return damaged(site, answer.rank);
        PathEnd own = ports_[rail.peer_port].end, peers = answer.ports[rail.port].end;
        own.gid = ports_[rail.peer_port].gids[rail.peer_gid];
        peers.gid = answer.ports[rail.port].gids[rail.gid];
        const size_t pairs = std::min(answer.pairs[place].size(), size_t(site.settings.pairs_on(own.link_layer)));
        WEFT_TRY(make_rail(site, rail.peer_port, own, peers, answer.ports[rail.port].device, pairs));
    }
    return ok();
}

Status NewLanes::pair_with(const PairLists& peer, uint32_t link) {
    std::vector<Lane> kept;
    std::vector<size_t> places(rails_.size());
    for (Lane& lane : *lanes_) {
        const size_t place = places[lane.rail]++;
        if (lane.rail >= peer.size() || place >= peer[lane.rail].size()) continue;
        lane.set_peer(peer[lane.rail][place]);
        WEFT_TRY(prepare_lane(lane, link, kept.size()));
        kept.push_back(std::move(lane));
    }
    *lanes_ = std::move(kept);
    return ok();
}

Status NewLanes::connect(const Site& site, int peer, std::shared_ptr<bool> alive, Done done) const {
    return run_detached("weft-rdma", [alive = std::move(alive), lanes = lanes_, flushes = flushes_, path = path(site),
                                      self = site.rank, peer, dispatcher = site.dispatcher, done = std::move(done)] {
        ConnectedLanes connected;
        for (size_t place = 0; place < lanes->size(); ++place) {
            const Status status = connect_lane((*lanes)[place], path);
            if (status) connected.lanes |= uint64_t(1) << place;
            if (status) continue;
            if (connected.first.id == ErrorId::none) connected.first = status.failure();
            WEFT_LOG_RANK(self, warn, net, "has a lane less to rank {}: {}", peer, status.sentence());
        }
        // A rail whose lanes cannot be connected now may come later, and then needs its flush.
        const Status flush = flushes->connect(path);
        // The queue pairs end on the service thread, too.
        dispatcher->service().post([alive, lanes, flushes, connected, wrong = flush.failure(), done] {
            if (!*alive) return;
            done(wrong.id == ErrorId::none ? Result<ConnectedLanes>(connected) : Result<ConnectedLanes>(Status(wrong)));
        });
    });
}

std::vector<uint32_t> NewLanes::keys_of(const Site& site, const Registered& memory) const {
    std::vector<uint32_t> keys;
    for (const size_t place : rails_) keys.push_back(memory.rkey(site.ports[place].device));
    return keys;
}

Status NewLanes::settle(const Site& site, int peer) {
    const uint64_t connected = own_ready_->lanes & peer_ready_->lanes;
    for (size_t place = 0; place < lanes_->size(); ++place) {
        Lane& lane = (*lanes_)[place];
        if (connected >> place & 1) {
            WEFT_LOG_RANK(site.rank, info, net, "links {} to {} with an MTU of {} bytes{}", described(lane.own),
                          described(lane.peer), mtu_bytes(path_mtu(lane.own, lane.peer)),
                          lane.rail < rails_used_ ? "" : ", in reserve");
            continue;
        }
        lane.pair.reset();
        lane.state = LaneState::gone;
    }
    if (connected != 0) return ok();
    for (const auto* side : {&*own_ready_, &*peer_ready_})
        if (side->first.id != ErrorId::none) return Status(side->first);
    return fail(error::verbs_path, "no rail between rank {} and rank {} is connected at both ends", site.rank, peer);
}

PairLists NewLanes::pairs() const {
    PairLists all(rails_.size());
    for (const Lane& lane : *lanes_) all[lane.rail].push_back(lane.numbers());
    return all;
}

}  // namespace weft::internal::verbs
