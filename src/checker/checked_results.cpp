#include "src/checker/checked_results.hpp"

namespace weft::internal {

CheckedResults::CheckedResults(const CheckedSet& set, const Contributions& contributions, const Verdict& verdict)
    : set_(set), contributions_(contributions), verdict_(verdict) {
    for (const LoadedOperation& operation : set.operations())
        expressions_.emplace_back(size_t(operation.schedules[0].chunks) * size_t(operation.tiles), 0);
}

// The expression of the sum that is rounded once, as execute_reduce() makes it.
uint64_t CheckedResults::sum_in_rank_order(uint32_t tile, int chunk) const {
    Value sum;
    if (set_.ranks() == 1) sum = contributions_.leaf(0, tile, uint32_t(chunk));
    for (int rank = 0; set_.ranks() > 1 && rank < set_.ranks(); ++rank)
        Contributions::accumulate(sum, contributions_.leaf(rank, tile, uint32_t(chunk)));
    Contributions::finish(sum);
    return sum.expression;
}

std::string CheckedResults::fault(int number, const Cell& cell, int rank, int tile, int chunk) {
    const LoadedOperation& operation = set_.operations()[size_t(number)];
    const Schedule& schedule = operation.schedules[size_t(rank)];
    if (!cell.value.defined()) return "is not written when it returns";
    const auto writer = [&] {
        return cell.write.step < 0 ? "; nothing was written there" : ", written by " + verdict_.place(cell.write);
    };
    if (!facts_of(schedule.collective).reduces) {
        // One rank's chunk: of the same place or, if every rank has a part for every rank, of the place of `rank`.
        const int shares = schedule.chunks / schedule.parts(), part = chunk / shares;
        const bool transposed = facts_of(schedule.collective).transposes;
        const bool from_root = facts_of(schedule.collective).input_of_others == Held::nothing;
        const int giver = from_root ? schedule.root : part;
        const int given = transposed ? rank * shares + chunk % shares : chunk;
        const Value right = contributions_.leaf(giver, operation.first_tile + tile, given);
        if (cell.value.expression == right.expression) return {};
        return fmt::format("is not chunk {} of rank {}{}", given, giver, writer());
    }
    if (!contributions_.complete(cell.value, chunk)) return contributions_.fault(cell.value, chunk) + writer();
    if (!cell.value.finished) return "is complete but not finished" + writer();
    uint64_t& result = expressions_[size_t(number)][size_t(tile) * size_t(schedule.chunks) + size_t(chunk)];
    if (result == 0) {
        result = cell.value.expression;
        in_rank_order_ &= result == sum_in_rank_order(operation.first_tile + uint32_t(tile), chunk);
    }
    if (result == cell.value.expression) return {};
    orders_differ_ = true;
    in_rank_order_ = false;
    return set_.options().any_order ? std::string() : "is summed in another order than on other ranks" + writer();
}

}  // namespace weft::internal
