#include "src/train/sharding/quantized_shards.hpp"

#include <algorithm>

#include "src/base/datatype.hpp"

namespace weft::internal::train {

QuantizedShards::QuantizedShards(MemorySpace& space, int bits, size_t block)
    : space_(&space), codec_(bits > 0 ? whole_number_codec(bits, block) : nullptr) {}

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

size_t QuantizedShards::message_bytes(const UnitLayout& layout) const { return codec_->bytes(most_elements(layout)); }

Status QuantizedShards::reserve(const UnitLayout& layout, size_t messages, size_t shards) {
    const size_t bytes = messages * message_bytes(layout);
    const size_t numbers_bytes = shards * most_elements(layout) * sizeof(float);
    if (numbers_bytes > numbers_.bytes()) WEFT_TRY(allocate(*space_, numbers_bytes, numbers_));
    if (bytes <= received_.bytes()) return ok();
    WEFT_TRY(allocate(*space_, bytes, sent_));
    return allocate(*space_, bytes, received_);
}

void QuantizedShards::write_shard(const UnitLayout& layout, int rank, const float* numbers, std::byte* shard) {
    for (const Segment& segment : layout.segments()) {
        const size_t count = segment.counts[size_t(rank)];
        write_numbers(shard + segment.shard_offsets[size_t(rank)], numbers, count, segment.type);
        numbers += count;
    }
}

Status QuantizedGather::reserve(const std::vector<Unit>& units) {
    for (const Unit& unit : units)
        if (used()) WEFT_TRY(QuantizedShards::reserve(unit.forms.whole, size_t(unit.layout.ranks()), 1));
    return ok();
}

Status QuantizedGather::run(const Peers& peers, const Unit& unit, std::byte* gathered) {
    const UnitLayout &own = unit.layout, &whole = unit.forms.whole;
    const size_t bytes = message_bytes(whole);
    float* numbers = floats();
    for (const Segment& segment : own.segments()) {
        const size_t count = segment.counts[size_t(peers.rank())];
        read_numbers(numbers, unit.shard.data() + segment.shard_offsets[size_t(peers.rank())], count, segment.type);
        numbers += count;
    }
    codec_->encode({floats(), elements(own, peers.rank())}, sent_.data());
    WEFT_TRY(peers.all_gather(sent_.data(), received_.data(), bytes));
    for (int rank = 0; rank < peers.ranks(); ++rank) {
        codec_->decode(received_.data() + size_t(rank) * bytes, {floats(), elements(whole, rank)});
        write_shard(whole, rank, floats(), gathered + size_t(rank) * whole.shard_bytes());
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

void QuantizedReduction::encode(const UnitLayout& layout, int rank, const WholeGradient& gradient, std::byte* message) {
    float* numbers = floats();
    for (size_t s = 0; s < layout.segments().size(); ++s) {
        const Segment& segment = layout.segments()[s];
        size_t before = 0;
        for (int other = 0; other < rank; ++other) before += segment.counts[size_t(other)];
        const size_t count = segment.counts[size_t(rank)];
        read_numbers(numbers, gradient.segments[s] + before * size_of(segment.type), count, segment.type);
        numbers += count;
    }
    codec_->encode({floats(), elements(layout, rank)}, message);
}

void QuantizedReduction::add_up(const std::byte* messages, size_t stride, int count, std::span<float> sum) {
    codec_->decode(messages, sum);
    for (int i = 1; i < count; ++i) {
        codec_->decode(messages + size_t(i) * stride, {floats(), sum.size()});
        for (size_t k = 0; k < sum.size(); ++k) sum[k] += floats()[k];
    }
}

Status QuantizedReduction::run(const ShardGroups& groups, const UnitLayout& layout, const WholeGradient& gradient,
                               std::span<const double> factors, std::byte* shard) {
    const bool hops = groups.has_hops();
    const Peers& first = hops ? groups.host() : groups.shard();
    const int members = first.ranks(), hosts = hops ? groups.across().ranks() : 1;
    const size_t bytes = message_bytes(layout), most = most_elements(layout);
    const auto sum_for = [&](int host) {
        const int rank = host * members + first.rank();
        return std::span(floats() + size_t(host + 1) * most, elements(layout, rank));
    };
    // A member gets the parts of the ranks with its place on all hosts.
    for (int member = 0; member < members; ++member)
        for (int host = 0; host < hosts; ++host)
            encode(layout, host * members + member, gradient, sent_.data() + size_t(member * hosts + host) * bytes);
    WEFT_TRY(first.all_to_all(sent_.data(), received_.data(), size_t(hosts) * bytes));
    for (int host = 0; host < hosts; ++host)
        add_up(received_.data() + size_t(host) * bytes, size_t(hosts) * bytes, members, sum_for(host));
    std::span<float> sum = sum_for(0);
    if (hops) {
        for (int host = 0; host < hosts; ++host) codec_->encode(sum_for(host), sent_.data() + size_t(host) * bytes);
        WEFT_TRY(groups.across().all_to_all(sent_.data(), received_.data(), bytes));
        sum = sum_for(groups.across().rank());
        add_up(received_.data(), bytes, hosts, sum);
    }
    float* numbers = sum.data();
    for (size_t s = 0; s < layout.segments().size(); ++s)
        for (size_t left = layout.segments()[s].counts[size_t(groups.shard().rank())]; left > 0; --left)
            *numbers++ *= float(factors[s]);
    write_shard(layout, groups.shard().rank(), sum.data(), shard);
    return ok();
}

}  // namespace weft::internal::train
