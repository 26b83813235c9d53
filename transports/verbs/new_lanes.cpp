#include "transports/verbs/new_lanes.hpp"

#include <unistd.h>

#include <algorithm>

#include "src/base/log.hpp"

namespace weft::internal::verbs {

namespace {

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

Status NewLanes::make(Site& site, uint32_t link) {
    if (lanes_) return ok();
    lanes_ = std::make_shared<std::vector<Lane>>();
    for (size_t rail = 0; rail < site.ports.size(); ++rail) {
        const Port& port = site.ports[rail];
        auto gids = site.devices.all()[port.device].context->gids(port.number);
        if (!gids) return gids.take_status();
        // The peer may choose, and must not choose another one than the user wants.
        const int index = site.settings.gid_rules(*gids).index;
        const auto wanted =
            std::find_if(gids->begin(), gids->end(), [index](const PortGid& gid) { return gid.index == index; });
        if (wanted != gids->end()) *gids = {PortGid(*wanted)};
        gids_.push_back(std::move(*gids));
        const int pairs = site.settings.pairs_on(port.attributes.link_layer);
        for (int place = 0; place < pairs; ++place) WEFT_TRY(make_pair(site, rail, link, place == 0 && site.flushes));
    }
    return ok();
}

Status NewLanes::make_pair(Site& site, size_t rail, uint32_t link, bool flushes) {
    const Port& port = site.ports[rail];
    const Device& device = site.devices.all()[port.device];
    const Settings& settings = site.settings;
    const int most = device.context->facts().limits.pair_requests;
    QueuePairOptions options = settings.pair;
    options.send_requests = std::min(options.send_requests, most);
    options.receive_requests = std::min(options.receive_requests, most);
    Lane lane;
    lane.rail = rail;
    lane.device = port.device;
    lane.send_requests = options.send_requests;
    lane.receive_requests = options.receive_requests;
    auto queue = site.queues.reserve(site.devices, port.device, options.send_requests + options.receive_requests);
    if (!queue) return queue.take_status();
    lane.queue = std::move(*queue);
    auto pair = QueuePair::make(*device.domain, *lane.queue, *lane.queue, options);
    if (!pair) return pair.take_status();
    lane.pair = std::move(*pair);
    auto key = settings.partition_key.choose(device.context->pkeys(port.number), port.text());
    if (!key) return key.take_status();
    WEFT_TRY(lane.pair->init(port.number, *key, rights_of_peer));
    if (flushes) {
        auto flush = FlushPair::make(device, port.number, *key);
        if (!flush) return flush.take_status();
        lane.flush = std::move(*flush);
    }
    const uint64_t id = RequestId::of(true, link, lanes_->size(), 0);
    for (int left = options.receive_requests; left > 0; left -= receives_at_once)
        if (const int error = post_receives(*lane.pair, id, std::min(left, receives_at_once)))
            return fail(error::verbs_call, "{} refuses receive requests: {}", port.text(), errno_text(error));
    lane.own.host = fmt::format("rank {} on {}", site.rank, host_name());
    lane.own.device = port.name;
    lane.own.port = port.number;
    lane.own.link_layer = port.attributes.link_layer;
    lane.own.mtu = port.attributes.mtu;
    lane.own.lid = port.attributes.lid;
    lane.own.needs_grh = (port.attributes.flags & grh_required) != 0;
    lane.own.pair = lane.pair->number();
    lane.own.sequence = first_sequence();
    lanes_->push_back(std::move(lane));
    return ok();
}

Offer NewLanes::offer(const Site& site, uint64_t peer_token) const {
    Offer offer{.token = site.token, .peer_token = peer_token, .rank = site.rank, .rails = {}, .gids = {}};
    offer.rails.resize(gids_.size());
    for (const Lane& lane : *lanes_) {
        RailOffer& rail = offer.rails[lane.rail];
        rail.end = lane.own;
        rail.device = uint32_t(lane.device);
        rail.gids = gids_[lane.rail];
        rail.pairs.push_back({lane.own.pair, lane.own.sequence});
    }
    return offer;
}

Result<NewLanes::Gids> NewLanes::choose(const Site& site, const Offer& own, const Offer& peer) const {
    Gids chosen;
    for (size_t rail = 0; rail < std::min(own.rails.size(), peer.rails.size()); ++rail) {
        const PathEnd &mine = own.rails[rail].end, &peers = peer.rails[rail].end;
        auto gids =
            choose_gid_pair(own.rails[rail].gids, peer.rails[rail].gids, site.settings.gid_rules(own.rails[rail].gids),
                            fmt::format("{} {}:{}", mine.host, mine.device, mine.port),
                            fmt::format("{} {}:{}", peers.host, peers.device, peers.port));
        if (!gids) return gids.take_status();
        chosen.emplace_back(gids->own, gids->peer);
        WEFT_LOG_RANK(site.rank, trace, net, "{}:{} reaches {}:{}: {}", mine.device, mine.port, peers.device,
                      peers.port, gids->reason);
    }
    return chosen;
}

NewLanes::Gids NewLanes::chosen_by(const Offer& answer) const {
    Gids chosen;
    if (answer.gids.size() != std::min(gids_.size(), answer.rails.size())) return {};
    for (size_t rail = 0; rail < answer.gids.size(); ++rail) {
        const auto [peers, own] = answer.gids[rail];
        if (peers >= answer.rails[rail].gids.size() || own >= gids_[rail].size()) return {};
        chosen.emplace_back(own, peers);
    }
    return chosen;
}

void NewLanes::pair_with(const Offer& peer, const Gids& gids) {
    std::vector<Lane> kept;
    std::vector<size_t> places(gids_.size());
    for (Lane& lane : *lanes_) {
        const size_t rail = lane.rail, place = places[rail]++;
        if (rail >= gids.size() || place >= peer.rails[rail].pairs.size()) continue;
        lane.own.gid = gids_[rail][gids[rail].first];
        lane.peer = peer.rails[rail].end;
        lane.peer_device = peer.rails[rail].device;
        lane.peer.gid = peer.rails[rail].gids[gids[rail].second];
        lane.peer.pair = peer.rails[rail].pairs[place].number;
        lane.peer.sequence = peer.rails[rail].pairs[place].sequence;
        kept.push_back(std::move(lane));
    }
    *lanes_ = std::move(kept);
}

Status NewLanes::connect(std::vector<Lane>& lanes, const PathOptions& path) {
    for (Lane& lane : lanes) {
        WEFT_TRY(lane.pair->receive_from(lane.own, lane.peer, path));
        WEFT_TRY(lane.pair->begin_sending(lane.own, path));
        if (lane.flush) WEFT_TRY(lane.flush->connect(lane.own, path));
    }
    return ok();
}

}  // namespace weft::internal::verbs
