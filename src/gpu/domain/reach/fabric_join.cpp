#include "src/gpu/domain/reach/fabric_join.hpp"

#include <algorithm>
#include <cstring>

#include "src/base/log.hpp"
#include "src/drivers/cuda/device.hpp"

namespace weft::internal::cuda {

namespace {

struct FabricEntry {
    uint64_t address;  // in the rank's process
    uint64_t bytes;
    FabricHandle handle;
};
static_assert(sizeof(FabricEntry) <= OobEntry::value_bytes);

}  // namespace

bool FabricJoin::wanted() const {
    if (!ranks_.several_hosts() || ranks_.segment->header().agreed.gpu.path != GpuPath::fastest) return false;
    const DeviceFacts& first = ranks_.segment->row(0).gpu.facts;
    return std::all_of(entries_.posting().begin(), entries_.posting().end(), [&](int rank) {
        const DeviceFacts& facts = ranks_.segment->row(rank).gpu.facts;
        return (facts.capabilities & peer_memory) != 0 && facts.fabric.same_domain(first.fabric);
    });
}

Result<bool> FabricJoin::advance() {
    if (stage_ == Stage::making) WEFT_TRY(report(JoinEntries::fabric_made, make(), Stage::mapping));
    // Entries of a rank arrive in their order, so the handles are there.
    if (stage_ == Stage::mapping && passed(JoinEntries::fabric_made))
        WEFT_TRY(report(JoinEntries::fabric_reached, map_all(), Stage::verifying));
    if (stage_ == Stage::verifying && passed(JoinEntries::fabric_reached))
        WEFT_TRY(report(JoinEntries::fabric_verified, verify(), Stage::agreeing));
    if (stage_ == Stage::agreeing && passed(JoinEntries::fabric_verified)) {
        stage_ = Stage::works;
        memory_.fabric().works = true;
        if (ranks_.rank == 0)
            WEFT_LOG_RANK(0, info, init,
                          "one NVLink domain has all {} hosts: collectives and messages use the memory of all {} "
                          "ranks, {} bytes of each device",
                          ranks_.other_hosts.size() + 1, ranks_.count, memory_.fabric().own.bytes());
    }
    return stage_ == Stage::works || stage_ == Stage::refused;
}

std::vector<int> FabricJoin::missing() const {
    int entry = JoinEntries::fabric_made;
    switch (stage_) {
        case Stage::making:
        case Stage::mapping: break;
        case Stage::verifying: entry = JoinEntries::fabric_reached; break;
        case Stage::agreeing: entry = JoinEntries::fabric_verified; break;
        case Stage::works:
        case Stage::refused: return {};
    }
    std::vector<int> ranks;
    for (const int peer : entries_.posting())
        if (!entries_.find(peer, entry)) ranks.push_back(peer);
    return ranks;
}

void FabricJoin::unmap() {
    test_.synchronize_after_failure();
    memory_.fabric().imports.clear();
}

bool FabricJoin::passed(int entry) {
    if (!entries_.all_have_put(entry)) return false;
    obstacle_ = entries_.first_obstacle(entry).text;
    if (!obstacle_.empty()) stage_ = Stage::refused;
    return obstacle_.empty();
}

Status FabricJoin::report(int entry, const Status& done, Stage next) {
    stage_ = next;
    return entries_.post_report(entry, done, false, {});
}

Status FabricJoin::make() {
    FabricMemory& fabric = memory_.fabric();
    const Context& context = memory_.kernels().context();
    WEFT_TRY(test_.begin());
    auto peers = devices_that_reach(context.driver(), context.device());
    if (!peers) return peers.take_status();
    auto memory = VmmMemory::allocate(context, fabric.layout.bytes, *peers, VmmExport::fabric);
    if (!memory) return memory.take_status();
    fabric.own = std::move(*memory);
    fabric.bases[size_t(ranks_.rank)] = fabric.own.address();
    WEFT_TRY(test_.clear());
    WEFT_TRY(test_.write());
    auto handle = export_fabric(context.driver(), fabric.own);
    if (!handle) return handle.take_status();
    const FabricEntry entry{fabric.own.address(), fabric.own.bytes(), *handle};
    return entries_.post(JoinEntries::fabric_handle, &entry, sizeof entry);
}

// Whether the peer is in this process and on this host, and has opened its memory for our device (make()).
bool FabricJoin::shares_addresses(int peer) const {
    const Segment& group = *ranks_.segment;
    const Context& context = memory_.kernels().context();
    if (!group.local(peer) || !group.same_process(peer, ranks_.rank)) return false;
    const int device = group.row(peer).gpu.facts.ordinal;
    if (device == context.device()) return true;
    const auto access = peer_access(context.driver(), context.device(), device);
    return access && access->reachable;
}

Status FabricJoin::map(int peer) {
    FabricMemory& fabric = memory_.fabric();
    const std::byte* const found = entries_.find(peer, JoinEntries::fabric_handle);
    if (!found) return fail(error::gpu_peer_access, "its fabric handle did not arrive");
    FabricEntry entry;
    memcpy(&entry, found, sizeof entry);
    if (shares_addresses(peer)) {
        fabric.bases[size_t(peer)] = entry.address;
        return ok();
    }
    auto memory = VmmMemory::import_fabric(memory_.kernels().context(), entry.handle, entry.bytes);
    if (!memory) return memory.take_status();
    fabric.bases[size_t(peer)] = memory->address();
    fabric.imports.push_back(std::move(*memory));
    return ok();
}

Status FabricJoin::map_all() {
    for (const int peer : entries_.posting()) {
        if (peer == ranks_.rank) continue;
        Status mapped = map(peer);
        if (!mapped) return fail(mapped, "cannot reach rank {}'s memory: {}", peer, mapped.sentence());
        WEFT_TRY(test_.access(peer));
    }
    return test_.synchronize();
}

Status FabricJoin::verify() {
    RankBits unreached;
    Status fault;
    WEFT_TRY(test_.check(unreached, fault));
    return fault;
}

}  // namespace weft::internal::cuda
