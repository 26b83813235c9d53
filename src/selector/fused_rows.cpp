#include "src/selector/fused_rows.hpp"

#include <algorithm>

#include "src/base/collective.hpp"
#include "src/base/datatype.hpp"

namespace weft::internal {

namespace {

constexpr size_t any_size = SIZE_MAX;

// These limits follow published results for 8 GPUs on one NVSwitch. Weft has not measured them.
// One-shot sends everything to every rank: one trip, but `ranks` times the bytes. With two ranks it sends no more than
// two-shot does. Packets with epochs double the bytes but need no barrier.
constexpr FusedRow all_reduce_rows[] = {
    {true, FusedKernel::packet_one_shot, 64 << 10, 16 << 10},
    {false, FusedKernel::packet_two_shot, epoch_packet_bytes, epoch_packet_bytes},
    {false, FusedKernel::peer_two_shot, any_size, any_size},
};
constexpr FusedRow parted_rows[] = {
    {true, FusedKernel::packet_one_shot, 512 << 10, 512 << 10},
    {true, FusedKernel::peer_one_shot, any_size, any_size},
};
// A broadcast or reduce of a long message takes two steps, so that the root's links do not carry it `ranks` times.
constexpr FusedRow whole_rows[] = {
    {true, FusedKernel::packet_one_shot, 128 << 10, 128 << 10},
    {false, FusedKernel::peer_two_shot, any_size, any_size},
};

}  // namespace

std::span<const FusedRow> fused_rows(Collective collective) {
    if (collective == Collective::all_reduce) return all_reduce_rows;
    if (facts_of(collective).parted) return parted_rows;
    return whole_rows;
}

size_t fused_bytes(const Operation& operation, int ranks) {
    return operation.collective == Collective::all_reduce ? operation.bytes() : operation.bytes() * size_t(ranks);
}

size_t most_bytes_of(const FusedRow& row, const Operation& operation, int ranks, size_t packet_bytes) {
    constexpr int scaled_from = 16;
    if (row.kernel == FusedKernel::packet_two_shot && !is_integer(weftDataType_t(operation.type)))
        return ranks == 1 || ranks > scaled_from ? std::min(packet_bytes, row.most_bytes) : packet_bytes;
    if (ranks <= 2) return row.most_bytes_of_two;
    const bool sends_to_all = row.one_shot && operation.collective == Collective::all_reduce;
    return sends_to_all && ranks > scaled_from ? row.most_bytes * scaled_from / size_t(ranks) : row.most_bytes;
}

bool multicast_pays(const Operation& operation) {
    return operation.collective == Collective::all_reduce && operation.bytes() >= multicast_limits.bytes;
}

const FusedRow* choose_fused(const Operation& operation, int ranks, FusedTechniques techniques, bool steps) {
    const bool parted = facts_of(operation.collective).parted,
               all_reduce = operation.collective == Collective::all_reduce;
    const size_t bytes = fused_bytes(operation, ranks);
    const FusedRow* last = nullptr;
    for (const FusedRow& row : fused_rows(operation.collective)) {
        const bool there = all_reduce || parted ? (row.one_shot ? techniques.one_shot : techniques.two_shot)
                                                : techniques.one_shot || techniques.two_shot;
        if (!there) continue;
        last = &row;
        if (bytes <= most_bytes_of(row, operation, ranks, techniques.packet_bytes)) return last;
    }
    // A one-shot kernel serves any size if nothing else can.
    return steps ? nullptr : last;
}

}  // namespace weft::internal
