#include "src/train/sharding/unit_reduction.hpp"

#include "src/base/datatype.hpp"

namespace weft::internal::train {

namespace {

size_t segment_elements(const Segment& segment) {
    size_t count = 0;
    for (const size_t each : segment.counts) count += each;
    return count;
}

size_t converted_gradient_bytes(const Unit& unit) {
    return converts(unit.forms.reduced, unit.forms.gradient) ? unit.forms.gradient.shard_bytes() : 0;
}
size_t host_gradient_bytes(const Unit& unit) { return unit.host_shards ? unit.forms.gradient.shard_bytes() : 0; }

}  // namespace

UnitReduction::UnitReduction(MemorySpace& space, const ShardGroups& groups, double divisor,
                             const Quantization& quantization)
    : space_(&space),
      groups_(&groups),
      divisor_(divisor),
      quantized_(space, quantization.reduce_bits, quantization.block) {}

Status UnitReduction::reserve(const std::vector<Unit>& units, int hosts) {
    WEFT_TRY(quantized_.reserve(units, hosts));
    WEFT_TRY(
        allocate(*space_, largest(units, [](const Unit& unit) { return unit.forms.reduced.shard_bytes(); }), sum_));
    WEFT_TRY(allocate(*space_, largest(units, converted_gradient_bytes), converted_));
    return allocate(*space_, largest(units, host_gradient_bytes), shard_on_device_);
}

std::byte* UnitReduction::shard_of(const Unit& unit) const {
    return unit.host_shards ? shard_on_device_.data() : unit.gradient.shard.data();
}

void UnitReduction::discard() {
    sum_.discard();
    converted_.discard();
}

GradientDivision UnitReduction::division(weftDataType_t type) const {
    const int ranks = groups_->all().ranks();
    return gradient_division(type, ranks, divisor_ > 0 ? divisor_ : ranks);
}

bool UnitReduction::in_place(const Unit& unit, const ReductionPlan& plan) {
    return !plan.adds_gradient && !plan.adds_partial && !converts(unit.forms.reduced, unit.forms.gradient);
}

Status UnitReduction::over_shards(Unit& unit, const ReductionPlan& plan, const std::byte* gradient,
                                  const std::byte* staging) {
    const bool staged = staging_bytes(unit) > 0;
    if (!in_place(unit, plan)) WEFT_TRY(sum_.back());
    const std::byte* const source = staged ? staging : gradient;
    if (!groups_->has_replicas()) {
        std::byte* const to = in_place(unit, plan) ? shard_of(unit) : sum_.data();
        WEFT_TRY(reduce_to(unit, source, staged, to));
        WEFT_TRY(divide_after(unit, to));
        return keep(unit, plan, to);
    }
    // The first gradient is reduced over replicas where it stays. Others have a place of their own until then.
    std::byte* const to = plan.synchronizes && in_place(unit, plan) ? shard_of(unit) : unit.gradient.partial.data();
    if (!plan.adds_partial) return reduce_to(unit, source, staged, to);
    WEFT_TRY(reduce_to(unit, source, staged, sum_.data()));
    return add(unit.forms.reduced, to, sum_.data());
}

Status UnitReduction::over_replicas(Unit& unit, const ReductionPlan& plan) {
    const UnitLayout& layout = unit.forms.reduced;
    std::byte* const from = in_place(unit, plan) ? shard_of(unit) : unit.gradient.partial.data();
    const bool kept_later = plan.adds_gradient || converts(layout, unit.forms.gradient);
    std::byte* const to = kept_later ? unit.gradient.partial.data() : shard_of(unit);
    const int rank = groups_->shard().rank();
    for (const Segment& segment : layout.segments()) {
        const size_t count = segment.counts[size_t(rank)], offset = segment.shard_offsets[size_t(rank)];
        if (count == 0) continue;
        const bool averages = division(segment.type).reduction == GradientDivision::Reduction::average;
        WEFT_TRY(groups_->replicas().all_reduce(from + offset, to + offset, count, segment.type,
                                                averages ? weftAvg : weftSum, space_->stream()));
    }
    WEFT_TRY(divide_after(unit, to));
    return keep(unit, plan, to);
}

Status UnitReduction::keep(Unit& unit, const ReductionPlan& plan, const std::byte* reduced) {
    std::byte* const shard = shard_of(unit);
    if (!unit.host_shards) return merge(unit, plan, reduced, shard);
    const size_t bytes = unit.forms.gradient.shard_bytes();
    if (plan.adds_gradient) WEFT_TRY(space_->copy(shard, unit.gradient.shard.data(), bytes));
    WEFT_TRY(merge(unit, plan, reduced, shard));
    return space_->copy(unit.gradient.shard.data(), shard, bytes);
}

Status UnitReduction::merge(const Unit& unit, const ReductionPlan& plan, const std::byte* reduced, std::byte* shard) {
    if (reduced == shard) return ok();
    const UnitLayout& layout = unit.forms.gradient;
    if (!converts(unit.forms.reduced, layout)) return add(layout, shard, reduced);
    const weftDataType_t type = layout.segments()[0].type;
    if (plan.adds_gradient) WEFT_TRY(converted_.back());
    std::byte* const to = plan.adds_gradient ? converted_.data() : shard;
    WEFT_TRY(space_->convert(to, type, reduced, unit.forms.reduced.segments()[0].type,
                             layout.shard_bytes() / size_of(type)));
    return plan.adds_gradient ? add(layout, shard, to) : ok();
}

Status UnitReduction::reduce_to(const Unit& unit, const std::byte* source, bool staged, std::byte* shard) {
    if (quantized_.used()) return reduce_quantized(unit, source, staged, shard);
    Peers& peers = groups_->shard();
    size_t staged_offset = 0;
    for (const Segment& segment : unit.forms.reduced.segments()) {
        const size_t count = segment_elements(segment);
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

Status UnitReduction::reduce_quantized(const Unit& unit, const std::byte* source, bool staged, std::byte* shard) {
    WholeGradient gradient;
    std::vector<double> factors;
    size_t staged_offset = 0;
    for (const Segment& segment : unit.forms.reduced.segments()) {
        gradient.segments.push_back(source + (staged ? staged_offset : segment.whole_offset));
        staged_offset += segment_elements(segment) * size_of(segment.type);
        const GradientDivision division = this->division(segment.type);
        const bool averages = division.reduction == GradientDivision::Reduction::average;
        factors.push_back(1 / (averages ? double(groups_->shard().ranks()) : division.before));
    }
    return quantized_.run(*groups_, unit.forms.reduced, gradient, factors, shard);
}

Traffic UnitReduction::traffic(const Unit& unit) const {
    const UnitLayout& layout = unit.forms.reduced;
    if (layout.shard_bytes() == 0) return {};
    if (!quantized_.used()) return groups_->traffic(layout.ranks(), layout.shard_bytes());
    const size_t bytes = quantized_.message_bytes(layout);
    if (!groups_->has_hops()) return groups_->traffic(layout.ranks(), bytes);
    const size_t hosts = size_t(groups_->across().ranks());
    Traffic sum = groups_->traffic(groups_->host().ranks(), hosts * bytes);
    sum += {(hosts - 1) * bytes, (hosts - 1) * bytes};
    return sum;
}

Status UnitReduction::stage(const Unit& unit, const std::byte* gradient, std::byte* staging) {
    const UnitLayout &from = unit.forms.whole, &to = unit.forms.reduced;
    if (to.sharding() == Sharding::flat)  // with its padding
        return space_->convert(staging, to.segments()[0].type, gradient, from.segments()[0].type,
                               from.whole_bytes() / size_of(from.segments()[0].type));
    size_t at = 0;
    for (const Segment& segment : to.segments())
        for (int rank = 0; rank < to.ranks(); ++rank) {
            const size_t end = at + segment.counts[size_t(rank)] * size_of(segment.type);
            for (const int parameter : segment.parameters) {
                const weftDataType_t type = from.parameters()[size_t(parameter)].type;
                const Piece piece = to.piece(parameter, rank);
                const size_t bytes = piece.count * size_of(segment.type);
                const size_t padded = to.piece(parameter, 0).count * size_of(segment.type);
                const std::byte* const source = gradient + from.whole_offset(parameter) + piece.begin * size_of(type);
                if (type == segment.type)
                    WEFT_TRY(space_->copy(staging + at, source, bytes));
                else
                    WEFT_TRY(space_->convert(staging + at, segment.type, source, type, piece.count));
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
    for (const Segment& segment : unit.forms.reduced.segments()) {
        const double after = division(segment.type).after;
        if (after == 1) continue;
        WEFT_TRY(space_->scale(shard + segment.shard_offsets[size_t(rank)], segment.counts[size_t(rank)], segment.type,
                               1, after));
    }
    return ok();
}

Status UnitReduction::add(const UnitLayout& layout, std::byte* to, const std::byte* from) {
    const int rank = groups_->shard().rank();
    for (const Segment& segment : layout.segments()) {
        const size_t offset = segment.shard_offsets[size_t(rank)];
        WEFT_TRY(space_->add(to + offset, from + offset, segment.counts[size_t(rank)], segment.type));
    }
    return ok();
}

}  // namespace weft::internal::train
