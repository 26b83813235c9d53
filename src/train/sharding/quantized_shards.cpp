#include "src/train/sharding/quantized_shards.hpp"

#include <algorithm>

#include "src/base/datatype.hpp"

namespace weft::internal::train {

QuantizedShards::QuantizedShards(MemorySpace& space, int bits, size_t block) : space_(&space), form_{bits, block} {}

size_t QuantizedShards::elements(const UnitLayout& layout, int rank) {
    size_t count = 0;
    for (const Segment& segment : layout.segments()) count += segment.counts[size_t(rank)];
    return count;
}

size_t QuantizedShards::most_elements(const UnitLayout& layout) {
    size_t most = 0;
    for (int rank = 0; rank < layout.ranks(); ++rank) most = std::max(most, elements(layout, rank));
    return most;
}

size_t QuantizedShards::message_bytes(const UnitLayout& layout) const { return form_.bytes(most_elements(layout)); }

Status QuantizedShards::reserve(const UnitLayout& layout, size_t messages, size_t shards) {
    const size_t bytes = messages * message_bytes(layout);
    const size_t number_bytes = shards * most_elements(layout) * sizeof(float);
    if (number_bytes > numbers_.bytes()) WEFT_TRY(allocate(*space_, number_bytes, numbers_));
    if (bytes <= received_.bytes()) return ok();
    WEFT_TRY(allocate(*space_, bytes, sent_));
    return allocate(*space_, bytes, received_);
}

Status QuantizedShards::read(float* numbers, const std::byte* elements, size_t count, weftDataType_t type) {
    if (type == weftFloat32) return space_->copy(numbers, elements, count * sizeof(float));
    return space_->convert(numbers, weftFloat32, elements, type, count);
}

Status QuantizedShards::write_shard(const UnitLayout& layout, int rank, const float* numbers, std::byte* shard) {
    for (const Segment& segment : layout.segments()) {
        const size_t count = segment.counts[size_t(rank)];
        std::byte* const to = shard + segment.shard_offsets[size_t(rank)];
        if (segment.type == weftFloat32)
            WEFT_TRY(space_->copy(to, numbers, count * sizeof(float)));
        else
            WEFT_TRY(space_->convert(to, segment.type, numbers, weftFloat32, count));
        numbers += count;
    }
    return ok();
}

Status QuantizedGather::reserve(const std::vector<Unit>& units) {
    for (const Unit& unit : units)
        if (used()) WEFT_TRY(QuantizedShards::reserve(unit.forms.whole, size_t(unit.layout.ranks()), 1));
    return ok();
}

Status QuantizedGather::run(const Peers& peers, const Unit& unit, const std::byte* shard, std::byte* gathered) {
    const UnitLayout &own = unit.layout, &whole = unit.forms.whole;
    const size_t bytes = message_bytes(whole);
    float* next = numbers();
    for (const Segment& segment : own.segments()) {
        const size_t count = segment.counts[size_t(peers.rank())];
        WEFT_TRY(read(next, shard + segment.shard_offsets[size_t(peers.rank())], count, segment.type));
        next += count;
    }
    WEFT_TRY(space_->encode(form_, numbers(), elements(own, peers.rank()), sent_.data()));
    WEFT_TRY(peers.all_gather(sent_.data(), received_.data(), bytes, space_->stream()));
    for (int rank = 0; rank < peers.ranks(); ++rank) {
        WEFT_TRY(space_->decode(form_, received_.data() + size_t(rank) * bytes, elements(whole, rank), numbers()));
        WEFT_TRY(write_shard(whole, rank, numbers(), gathered + size_t(rank) * whole.shard_bytes()));
    }
    return ok();
}

Status QuantizedReduction::reserve(const std::vector<Unit>& units, int hosts) {
    for (const Unit& unit : units)
        if (used())
            // Sums for all hosts, and the numbers that are added.
            WEFT_TRY(
                QuantizedShards::reserve(unit.forms.reduced, size_t(unit.layout.ranks()), size_t(hosts) + size_t(1)));
    return ok();
}

Status QuantizedReduction::encode(const UnitLayout& layout, int rank, const WholeGradient& gradient,
                                  std::byte* message) {
    float* next = numbers();
    for (size_t s = 0; s < layout.segments().size(); ++s) {
        const Segment& segment = layout.segments()[s];
        size_t before = 0;
        for (int other = 0; other < rank; ++other) before += segment.counts[size_t(other)];
        const size_t count = segment.counts[size_t(rank)];
        WEFT_TRY(read(next, gradient.segments[s] + before * size_of(segment.type), count, segment.type));
        next += count;
    }
    return space_->encode(form_, numbers(), elements(layout, rank), message);
}

Status QuantizedReduction::add_up(const std::byte* messages, size_t stride, int count, std::span<float> sum) {
    WEFT_TRY(space_->decode(form_, messages, sum.size(), sum.data()));
    for (int i = 1; i < count; ++i) {
        WEFT_TRY(space_->decode(form_, messages + size_t(i) * stride, sum.size(), numbers()));
        WEFT_TRY(space_->add(sum.data(), numbers(), sum.size(), weftFloat32));
    }
    return ok();
}

Status QuantizedReduction::run(const ShardGroups& groups, const UnitLayout& layout, const WholeGradient& gradient,
                               std::span<const double> factors, std::byte* shard) {
    const bool hops = groups.has_hops();
    const Peers& first = hops ? groups.host() : groups.shard();
    const int members = first.ranks(), hosts = hops ? groups.across().ranks() : 1;
    const size_t bytes = message_bytes(layout), most = most_elements(layout);
    const auto sum_for = [&](int host) {
        const int rank = host * members + first.rank();
        return std::span(numbers() + size_t(host + 1) * most, elements(layout, rank));
    };
    // A member gets the parts of the ranks with its place on all hosts.
    for (int member = 0; member < members; ++member)
        for (int host = 0; host < hosts; ++host)
            WEFT_TRY(encode(layout, host * members + member, gradient,
                            sent_.data() + size_t(member * hosts + host) * bytes));
    WEFT_TRY(first.all_to_all(sent_.data(), received_.data(), size_t(hosts) * bytes, space_->stream()));
    for (int host = 0; host < hosts; ++host)
        WEFT_TRY(add_up(received_.data() + size_t(host) * bytes, size_t(hosts) * bytes, members, sum_for(host)));
    std::span<float> sum = sum_for(0);
    if (hops) {
        for (int host = 0; host < hosts; ++host)
            WEFT_TRY(
                space_->encode(form_, sum_for(host).data(), sum_for(host).size(), sent_.data() + size_t(host) * bytes));
        WEFT_TRY(groups.across().all_to_all(sent_.data(), received_.data(), bytes, space_->stream()));
        sum = sum_for(groups.across().rank());
        WEFT_TRY(add_up(received_.data(), bytes, hosts, sum));
    }
    float* scaled = sum.data();
    for (size_t s = 0; s < layout.segments().size(); ++s) {
        const size_t count = layout.segments()[s].counts[size_t(groups.shard().rank())];
        WEFT_TRY(space_->scale(scaled, count, weftFloat32, factors[s], 1));
        scaled += count;
    }
    return write_shard(layout, groups.shard().rank(), sum.data(), shard);
}

}  // namespace weft::internal::train
