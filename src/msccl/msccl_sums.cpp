#include "src/msccl/msccl_sums.hpp"

#include <algorithm>
#include <utility>

namespace weft::internal::msccl {

void RankOrderedSums::sort(RankFlow& flow, GatheredSum& gathered, Move& move) {
    if (gathered.operands.size() < 2) return;
    const auto new_cell = [&] { return BufferCell{Buffer::scratch, sorted_cell(sorted_cells_++)}; };
    GatheredSum::Operand& before = gathered.operands[gathered.operands.size() - 2];
    Move& left_off = flow.blocks[size_t(before.block)].moves[before.move];
    if (before.received) {
        before.where = left_off.sum >= 0 ? flow.sums[size_t(left_off.sum)].received : new_cell();
        left_off.does = Move::receive;
        left_off.target = before.where;
    } else {
        left_off.does = Move::nothing;
        left_off.target = {};
    }
    // If that step was to make a sum, its sum grows.
    move.sum = left_off.sum >= 0 ? left_off.sum : int32_t(flow.sums.size());
    if (left_off.sum < 0) flow.sums.emplace_back().partial = new_cell();
    left_off.sum = -1;
    left_off.source = left_off.lifted = {};
    left_off.left = left_off.finish = false;
    RankOrderedSum& sum = flow.sums[size_t(move.sum)];
    GatheredSum::Operand& last = gathered.operands.back();
    sum.received = last.received ? new_cell() : BufferCell();
    if (last.received) last.where = sum.received;
    std::vector<std::pair<int32_t, BufferCell>> all = {{gathered.own_lowest, gathered.own}};
    for (const GatheredSum::Operand& each : gathered.operands) all.emplace_back(each.lowest, each.where);
    std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    sum.operands.clear();
    for (const auto& [lowest, where] : all) sum.operands.push_back(where);
    sum.own = size_t(std::count_if(gathered.operands.begin(), gathered.operands.end(),
                                   [&](const auto& each) { return each.lowest < gathered.own_lowest; }));
}

}  // namespace weft::internal::msccl
