#include "src/train/unit_reduction.hpp"

#include "src/base/datatype.hpp"

namespace weft::internal::train {

namespace {

size_t elements(const Segment& segment) {
    size_t count = 0;
    for (const size_t each : segment.counts) count += each;
    return count;
}

}  // namespace

UnitReduction::UnitReduction(MemorySpace& space, const ShardGroups& groups, double divisor)
    : space_(&space), groups_(&groups), divisor_(divisor) {}

Status UnitReduction::reserve(size_t shard_bytes) {
    auto sum = FlatBuffer::allocate(*space_, shard_bytes);
    if (!sum) return sum.take_status();
    sum_ = std::move(*sum);
    return ok();
}

GradientDivision UnitReduction::division(weftDataType_t type) const {
    const int ranks = groups_->all().ranks();
    return gradient_division(type, ranks, divisor_ > 0 ? divisor_ : ranks);
}

Status UnitReduction::over_shards(Unit& unit, const ReductionPlan& plan, const std::byte* gradient,
                                  std::byte* staging) {
    const bool staged = unit.layout.sharding() == Sharding::rows;
    if (staged) WEFT_TRY(stage(unit, gradient, staging));
    const std::byte* const source = staged ? staging : gradient;
    if (!groups_->has_replicas()) {
        std::byte* const to = plan.adds_gradient ? sum_.data() : unit.gradient.shard.data();
        WEFT_TRY(reduce_to(unit, source, staged, to));
        WEFT_TRY(divide_after(unit, to));
        return plan.adds_gradient ? add(unit, unit.gradient.shard.data(), to) : ok();
    }
    // The first gradient is reduced over replicas where it stays. Others have a place of their own until then.
    const bool in_place = plan.synchronizes && !plan.adds_gradient && !plan.adds_partial;
    std::byte* const to = in_place ? unit.gradient.shard.data() : unit.gradient.partial.data();
    if (!plan.adds_partial) return reduce_to(unit, source, staged, to);
    WEFT_TRY(reduce_to(unit, source, staged, sum_.data()));
    return add(unit, to, sum_.data());
}

Status UnitReduction::over_replicas(Unit& unit, const ReductionPlan& plan) {
    const bool in_place = !plan.adds_gradient && !plan.adds_partial;
    std::byte* const from = in_place ? unit.gradient.shard.data() : unit.gradient.partial.data();
    std::byte* const to = plan.adds_gradient ? unit.gradient.partial.data() : unit.gradient.shard.data();
    const int rank = groups_->shard().rank();
    for (const Segment& segment : unit.layout.segments()) {
        const size_t count = segment.counts[size_t(rank)], offset = segment.shard_offsets[size_t(rank)];
        if (count == 0) continue;
        const bool averages = division(segment.type).reduction == GradientDivision::Reduction::average;
        WEFT_TRY(groups_->replicas().all_reduce(from + offset, to + offset, count, segment.type,
                                                averages ? weftAvg : weftSum, space_->stream()));
    }
    WEFT_TRY(divide_after(unit, to));
    return plan.adds_gradient ? add(unit, unit.gradient.shard.data(), to) : ok();
}

Status UnitReduction::reduce_to(const Unit& unit, const std::byte* source, bool staged, std::byte* shard) {
    Peers& peers = groups_->shard();
    size_t staged_offset = 0;
    for (const Segment& segment : unit.layout.segments()) {
        const size_t count = elements(segment);
        if (count == 0) continue;
        const GradientDivision division = this->division(segment.type);
        weftRedOp_t op = weftSum;
        if (division.reduction != GradientDivision::Reduction::sum) {
            const bool averages = division.reduction == GradientDivision::Reduction::average;
            auto made = peers.average(segment.type, averages ? peers.ranks() : division.before);
            if (!made) return made.take_status();
            op = *made;
        }
        WEFT_TRY(peers.reduce_scatter(source + (staged ? staged_offset : segment.whole_offset),
                                      shard + segment.shard_offsets[size_t(peers.rank())], segment.counts, segment.type,
                                      op, space_->stream()));
        staged_offset += count * size_of(segment.type);
    }
    return ok();
}

Status UnitReduction::stage(const Unit& unit, const std::byte* gradient, std::byte* staging) {
    size_t at = 0;
    for (const Segment& segment : unit.layout.segments())
        for (int rank = 0; rank < unit.layout.ranks(); ++rank) {
            const size_t end = at + segment.counts[size_t(rank)] * size_of(segment.type);
            for (const int parameter : segment.parameters) {
                const Piece piece = unit.layout.piece(parameter, rank);
                const size_t bytes = piece.count * size_of(segment.type);
                const size_t padded = unit.layout.piece(parameter, 0).count * size_of(segment.type);
                WEFT_TRY(space_->copy(
                    staging + at, gradient + unit.layout.whole_offset(parameter) + piece.begin * size_of(segment.type),
                    bytes));
                WEFT_TRY(space_->zero(staging + at + bytes, padded - bytes));
                at += padded;
            }
            if (at != end)
                return fail(error::internal_exception, "unit \"{}\" was staged with {} bytes, not {}", unit.name, at,
                            end);
        }
    return ok();
}

Status UnitReduction::divide_after(const Unit& unit, std::byte* shard) {
    const int rank = groups_->shard().rank();
    for (const Segment& segment : unit.layout.segments()) {
        const double after = division(segment.type).after;
        if (after == 1) continue;
        WEFT_TRY(space_->scale(shard + segment.shard_offsets[size_t(rank)], segment.counts[size_t(rank)], segment.type,
                               1 / after));
    }
    return ok();
}

Status UnitReduction::add(const Unit& unit, std::byte* to, const std::byte* from) {
    const int rank = groups_->shard().rank();
    for (const Segment& segment : unit.layout.segments()) {
        const size_t offset = segment.shard_offsets[size_t(rank)];
        WEFT_TRY(space_->add(to + offset, from + offset, segment.counts[size_t(rank)], segment.type));
    }
    return ok();
}

}  // namespace weft::internal::train
