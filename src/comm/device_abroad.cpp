#include "src/comm/device_abroad.hpp"

#include "src/base/clock.hpp"
#include "src/base/log.hpp"

namespace weft {

namespace {

// Of letters, apart from those of host memory's connections: the group's number, alike on all ranks.
uint64_t name_of(size_t group) { return (uint64_t(group) + 1) * 0x8f1bbcdcbfa53e0bu; }

}  // namespace

DeviceAbroad::DeviceAbroad(std::shared_ptr<HostGroup> group, const net::Identity& identity, int rank,
                           const cuda::Connections& connections)
    : group_(std::move(group)), rank_(rank), news_(*group_) {
    for (size_t index = 0; index < connections.groups(); ++index) {
        connectors_.push_back({*group_,
                               rank,
                               {.identity = &identity,
                                .slot_bytes = cuda::Connections::slot_bytes,
                                .name = name_of(index),
                                .heap_used = nullptr,
                                .only_abroad = true}});
        bindings_.emplace_back().schedule = connections.schedule(index, rank);
    }
}

DeviceAbroad::~DeviceAbroad() {
    if (proxy_ && traffic_) (void)proxy_->detach(*traffic_, 1);
}

Status DeviceAbroad::listen() {
    for (size_t index = 0; index < bindings_.size(); ++index) WEFT_TRY(connectors_[index].listen(bindings_[index]));
    return ok();
}

Result<bool> DeviceAbroad::connect() {
    missing_.clear();
    RankSet all;
    for (size_t index = 0; index < bindings_.size(); ++index) {
        RankSet missing;
        auto connected = connectors_[index].connect(bindings_[index], missing);
        if (!connected) return connected;
        all.insert(missing);
    }
    all.for_each([this](int rank) { missing_.push_back(rank); });
    return missing_.empty();
}

Status DeviceAbroad::begin(const std::vector<cuda::AbroadEnd>& ends, const uint32_t* ended) {
    auto proxy = cuda::Proxy::of_process();
    if (!proxy) return proxy.take_status();
    proxy_ = std::move(*proxy);
    traffic_ = std::make_shared<cuda::Traffic>(group_, rank_, ended);
    for (const cuda::AbroadEnd& each : ends) {
        const BlockEnds& found = bindings_[each.group].ends[each.block];
        traffic_->add(each.end, each.incoming ? nullptr : found.target, each.incoming ? found.source : nullptr);
    }
    proxy_->attach(traffic_);
    return ok();
}

bool DeviceAbroad::drain(int64_t deadline_us) {
    if (!traffic_ || proxy_->detach(*traffic_, deadline_us)) return true;
    WEFT_LOG_RANK(rank_, warn, coll, "leaves although not all that its kernels have sent has left this host");
    return false;
}

bool DeviceAbroad::stuck() {
    const uint64_t moved = traffic_->moved();
    const bool still = traffic_->waiting() && moved == std::exchange(moved_, moved);
    if (still) news_.ask();
    return still;
}

Status DeviceAbroad::trouble() {
    auto trouble = traffic_->trouble();
    if (!trouble) return ok();
    news_.ask();
    if (news_.cause_may_come(trouble->since_us)) return ok();
    return {trouble->code, std::move(trouble->sentence)};
}

}  // namespace weft
