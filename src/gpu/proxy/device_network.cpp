#include "src/gpu/proxy/device_network.hpp"

#include "src/base/clock.hpp"
#include "src/base/log.hpp"
#include "src/gpu/kernels/message_arguments.hpp"
#include "src/segment/first_cause.hpp"

namespace weft::internal {

namespace {

// The OOB name of the connection info, different from that of connections of host memory.
constexpr uint64_t oob_name = 0x8f1bbcdcbfa53e0bu;

}  // namespace

DeviceNetwork::DeviceNetwork(std::shared_ptr<Segment> group, const net::Identity& identity, int rank,
                             const std::vector<cuda::RemoteEnd>& ends, std::string gpu)
    : segment_(std::move(group)),
      rank_(rank),
      connector_(*segment_, rank,
                 {.identity = &identity,
                  .slot_bytes = cuda::Connections::slot_bytes,
                  .name = oob_name,
                  .heap_used = nullptr,
                  .only_remote = true,
                  .driver = ConnectionOptions::Driver::proxy,
                  .gpu = std::move(gpu)}),
      health_(*segment_) {
    std::vector<std::pair<ConnectionSet*, size_t>> places;
    for (const cuda::RemoteEnd& each : ends) {
        ConnectionSet& set = sets_[{each.channel == cuda::message_channel_remote, each.end.depth}];
        set.depth = int(each.end.depth);
        places.push_back({&set, set.wanted.size()});
        ConnectionSet::Wanted& wanted = set.wanted.emplace_back();
        wanted.channel = each.channel;
        wanted.slot_bytes = each.end.slot_bytes;
        (each.incoming ? wanted.source : wanted.target) = each.end.peer;
    }
    for (auto& [kind, set] : sets_) set.ends.resize(set.wanted.size());
    for (const auto& [set, place] : places) {
        ends_.push_back(&set->ends[place]);
        wanted_.push_back(&set->wanted[place]);
    }
}

DeviceNetwork::~DeviceNetwork() {
    if (proxy_ && connections_) (void)proxy_->detach(*connections_, 1, 0);
}

Result<const Transport*> DeviceNetwork::transport() {
    const Transport* common = nullptr;
    for (int peer = 0; peer < segment_->ranks(); ++peer) {
        if (segment_->local(peer)) continue;
        auto transport = connector_.transport_to(peer);
        if (!transport) return transport;
        if (common != nullptr && common != *transport) return nullptr;
        common = *transport;
    }
    return common;
}

Status DeviceNetwork::listen(const std::vector<cuda::RemoteEnd>& ends, const RegisteredMemory* sent,
                             const RegisteredMemory* received) {
    for (size_t i = 0; i < ends.size(); ++i) {
        const RegisteredMemory* const memory = ends[i].incoming ? received : sent;
        if (memory == nullptr) continue;
        wanted_[i]->slots = ends[i].end.slots;
        wanted_[i]->slot_memory = memory;
    }
    for (auto& [kind, set] : sets_) WEFT_TRY(connector_.listen(set));
    return ok();
}

Result<bool> DeviceNetwork::connect(bool messages) {
    missing_.clear();
    RankSet all;
    for (auto& [kind, set] : sets_) {
        if (kind.first && !messages) continue;
        RankSet missing;
        auto connected = connector_.connect(set, missing);
        if (!connected) return connected;
        all.insert(missing);
    }
    all.for_each([this](int rank) { missing_.push_back(rank); });
    return missing_.empty();
}

Status DeviceNetwork::begin(const std::vector<cuda::RemoteEnd>& ends, const uint32_t* ended) {
    auto proxy = cuda::Proxy::of_process();
    if (!proxy) return proxy.take_status();
    proxy_ = std::move(*proxy);
    connections_ = std::make_shared<cuda::ProxyConnections>(segment_, rank_, ended);
    for (size_t i = 0; i < ends.size(); ++i)
        connections_->add(ends[i], ends_[i]->target, ends_[i]->source, wanted_[i]->slots != nullptr);
    proxy_->attach(connections_);
    return ok();
}

bool DeviceNetwork::drain(int64_t deadline_us) {
    if (!connections_ || proxy_->detach(*connections_, deadline_us, RemoteHealth::departed_us)) return true;
    WEFT_LOG_RANK(rank_, warn, coll, "leaves although not all that its kernels have sent has left this host");
    return false;
}

int64_t DeviceNetwork::stalled_us() {
    const uint64_t moved = connections_->moved();
    const bool moves = moved != std::exchange(moved_, moved);
    const int64_t now = now_us();
    if (!connections_->waiting())
        stalled_since_us_ = 0;
    else if (moves || stalled_since_us_ == 0)
        stalled_since_us_ = now;
    if (stalled_since_us_ == 0 || stalled_since_us_ == now) return 0;
    health_.ask();
    return now - stalled_since_us_;
}

Status DeviceNetwork::trouble() {
    auto trouble = connections_->trouble();
    if (!trouble) return ok();
    health_.ask();
    if (health_.cause_may_come(trouble->since_us)) return ok();
    if (segment_->row(trouble->peer).state.load(std::memory_order_acquire) == RankState::left)
        return first_cause(*segment_,
                           fail(error::rank_left, "{} left the communicator, and kernels of rank {} wait for it",
                                segment_->name_of(trouble->peer), rank_)
                               .about({.rank = trouble->peer, .peer = rank_}),
                           trouble->peer);
    return first_cause(*segment_, fail(Status(trouble->failure), "kernels of rank {} wait for {}: {}", rank_,
                                       segment_->name_of(trouble->peer), trouble->failure.sentence));
}

}  // namespace weft::internal
