#include "src/gpu/domain/multicast/multicast_join.hpp"

#include <cstring>
#include <set>
#include <string_view>
#include <utility>

#include "src/base/log.hpp"
#include "src/segment/liveness.hpp"

namespace weft::internal::cuda {

static_assert(sizeof(MulticastEntry) <= OobEntry::value_bytes);

// A device can be in an object only once.
bool MulticastJoin::wanted() const {
    const AgreedOptions& agreed = ranks_.segment->header().agreed;
    if (agreed.gpu.multicast == multicast_off || agreed.deterministic != 0 || ranks_.several_hosts() ||
        ranks_.count < (agreed.gpu.multicast == multicast_always ? 2 : least_ranks_) || ranks_.count > ranks_max)
        return false;
    std::set<std::string_view> devices;
    for (const int rank : ranks_.members) {
        const DeviceFacts& facts = ranks_.segment->row(rank).gpu.facts;
        if ((facts.capabilities & switch_multicast) == 0) return false;
        devices.emplace(reinterpret_cast<const char*>(facts.uuid), sizeof facts.uuid);
    }
    return int(devices.size()) == ranks_.count;
}

Result<bool> MulticastJoin::advance() {
    if (stage_ == Stage::creating) {
        if (ranks_.leads()) WEFT_TRY(create());
        stage_ = Stage::adding;
    }
    if (stage_ == Stage::adding && entries_.find(ranks_.members[0], JoinEntries::multicast_object)) {
        auto added = add();
        if (!added || !*added) return added;
    }
    if (stage_ == Stage::binding && passed(JoinEntries::multicast_added)) {
        post_.withdraw();
        WEFT_TRY(report(JoinEntries::multicast_bound, bind(), Stage::mapping));
    }
    if (stage_ == Stage::mapping && passed(JoinEntries::multicast_bound))
        WEFT_TRY(report(JoinEntries::multicast_mapped, memory_.multicast().object.map(), Stage::agreeing));
    if (stage_ == Stage::agreeing && passed(JoinEntries::multicast_mapped)) {
        stage_ = Stage::works;
        if (ranks_.leads())
            WEFT_LOG_RANK(ranks_.rank, info, init,
                          "the switch reduces and hands out messages, through {} bytes of each device",
                          memory_.multicast().object.bytes());
    }
    return stage_ == Stage::works || stage_ == Stage::refused;
}

std::vector<int> MulticastJoin::missing() const {
    int entry = JoinEntries::multicast_object;
    switch (stage_) {
        case Stage::creating:
        case Stage::adding: return {ranks_.members[0]};
        case Stage::binding: entry = JoinEntries::multicast_added; break;
        case Stage::mapping: entry = JoinEntries::multicast_bound; break;
        case Stage::agreeing: entry = JoinEntries::multicast_mapped; break;
        case Stage::works:
        case Stage::refused: return {};
    }
    std::vector<int> ranks;
    for (const int peer : ranks_.members)
        if (!entries_.find(peer, entry)) ranks.push_back(peer);
    return ranks;
}

bool MulticastJoin::passed(int entry) {
    if (!entries_.all_have_put(entry)) return false;
    obstacle_ = entries_.first_obstacle(entry).text;
    if (obstacle_.empty()) return true;
    post_.withdraw();
    stage_ = Stage::refused;
    return false;
}

Status MulticastJoin::report(int entry, const Status& done, Stage next) {
    stage_ = next;
    return entries_.post_report(entry, done, false, 0);
}

// A failure is reported with that of add().
Status MulticastJoin::create() {
    created_ = [&]() -> Status {
        const Context& context = memory_.kernels().context();
        const int devices = int(ranks_.members.size());
        auto bytes = MulticastObject::size_for(context.driver(), devices, memory_.layout().staging_bytes);
        if (!bytes) return bytes.take_status();
        auto object = post_.create(context, devices, *bytes);
        if (!object) return object.take_status();
        memory_.multicast().object = std::move(*object);
        return ok();
    }();
    return entries_.post(JoinEntries::multicast_object, &post_.entry(), sizeof(MulticastEntry));
}

Status MulticastJoin::fetch_and_add() {
    MulticastMemory& own = memory_.multicast();
    if (!ranks_.leads()) {
        const int creator = ranks_.members[0];
        MulticastEntry entry;
        memcpy(&entry, entries_.find(creator, JoinEntries::multicast_object), sizeof entry);
        auto object = fetch_multicast(memory_.kernels().context(), creator, entry);
        if (!object) return object.take_status();
        own.object = std::move(*object);
    }
    if (!created_) return std::move(created_);
    return own.object.add_device();
}

Result<bool> MulticastJoin::add() {
    const Status added = fetch_and_add();
    if (added.code() == weftTimeout && Liveness(*ranks_.segment).alive(ranks_.members[0])) return false;
    WEFT_TRY(report(JoinEntries::multicast_added, added, Stage::binding));
    return true;
}

Status MulticastJoin::bind() {
    MulticastMemory& own = memory_.multicast();
    auto memory = VmmMemory::allocate(memory_.kernels().context(), own.object.bytes());
    if (!memory) return memory.take_status();
    own.memory = std::move(*memory);
    return own.object.bind(own.memory);
}

}  // namespace weft::internal::cuda
