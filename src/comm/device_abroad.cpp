#include "src/comm/device_abroad.hpp"

#include "src/base/clock.hpp"
#include "src/base/log.hpp"

namespace weft {

namespace {

constexpr int64_t ask_apart_us = 500'000;
// As Communicator::die() has it: a broken connection is often what another's end looks like from here.
constexpr int64_t cause_patience_us = 400'000, news_patience_us = 5'000'000;

// Of letters, apart from those of host memory's connections: the group's number, alike on all ranks.
uint64_t name_of(size_t group) { return (uint64_t(group) + 1) * 0x8f1bbcdcbfa53e0bu; }

}  // namespace

DeviceAbroad::DeviceAbroad(std::shared_ptr<HostGroup> group, const net::Identity& identity, int rank,
                           const cuda::Connections& connections)
    : group_(std::move(group)), rank_(rank) {
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
    if (still) ask_for_news();
    return still;
}

void DeviceAbroad::ask_for_news() {
    const int64_t now = now_us();
    int64_t due = next_question_us_.load(std::memory_order_relaxed);
    if (now < due || !next_question_us_.compare_exchange_strong(due, now + ask_apart_us)) return;
    group_->header().curious.fetch_add(1, std::memory_order_release);
    group_->ring();
}

bool DeviceAbroad::informed_since(int64_t since_us) const {
    for (int other = 0; other < group_->ranks(); ++other) {
        const RankRow& row = group_->row(other);
        if (!group_->local(other) && group_->alive(other) &&
            row.state.load(std::memory_order_acquire) != RankState::left &&
            row.heard_us.load(std::memory_order_acquire) < since_us)
            return false;
    }
    return true;
}

Status DeviceAbroad::trouble() {
    auto trouble = traffic_->trouble();
    if (!trouble) return ok();
    ask_for_news();
    const int64_t waited_us = now_us() - trouble->since_us;
    if (waited_us < cause_patience_us || (waited_us < news_patience_us && !informed_since(trouble->since_us)))
        return ok();
    return {trouble->code, std::move(trouble->sentence)};
}

}  // namespace weft
