// quantized_rank.hpp: a rank of a sharded model whose messages are quantised, and the serial computation of the same
// roundings.
#pragma once
#include <algorithm>
#include <cmath>
#include <random>

#include "src/base/datatype.hpp"
#include "src/train/sharding/quantized_shards.hpp"
#include "src/train/sharding/sharded.hpp"
#include "tests/comm/on_threads.hpp"
#include "tests/train/trained_rank.hpp"

namespace weft::internal::test {

using namespace weft::internal::train;

inline UnitPlan quantized_unit(const std::string& name, const std::vector<TensorFacts>& facts, int reshard_ranks = 0) {
    UnitPlan unit{name, {}, reshard_ranks};
    for (size_t p = 0; p < facts.size(); ++p)
        unit.parameters.push_back({name + " " + std::to_string(p), nullptr, facts[p]});
    return unit;
}

// A number as its type holds it.
inline float rounded(weftDataType_t type, double number) {
    double memory = 0;
    set_number(&memory, type, 0, number);
    return float(number_at(&memory, type, 0));
}

// Rounds numbers as a message does, by the rule in the guide.
inline void quantize(std::vector<float>& numbers, int bits, size_t block) {
    const float highest = bits == 4 ? 7 : 127;
    for (size_t begin = 0; begin < numbers.size(); begin += block) {
        const size_t end = std::min(begin + block, numbers.size());
        float largest = 0;
        for (size_t i = begin; i < end; ++i) largest = std::max(largest, std::fabs(numbers[i]));
        for (size_t i = begin; i < end && largest > 0; ++i)
            numbers[i] = std::nearbyint(numbers[i] * (highest / largest)) * (largest / highest);
    }
}

// The elements of a rank's shard in the order of its message. element(parameter, i)
template <class Element>
std::vector<float> shard_of(const UnitLayout& layout, int rank, Element&& element) {
    std::vector<float> numbers;
    for (const Segment& segment : layout.segments()) {
        const size_t before = numbers.size();
        numbers.resize(before + segment.counts[size_t(rank)]);
        for (const int p : segment.parameters) {
            const Piece piece = layout.piece(p, rank);
            const size_t first =
                before + (piece.shard_offset - segment.shard_offsets[size_t(rank)]) / size_of(segment.type);
            for (size_t i = 0; i < piece.count; ++i) numbers[first + i] = element(p, piece.begin + i);
        }
    }
    return numbers;
}

// The reverse: write(parameter, i, number)
template <class Write>
void each_of_shard(const UnitLayout& layout, int rank, const std::vector<float>& numbers, Write&& write) {
    size_t before = 0;
    for (const Segment& segment : layout.segments()) {
        for (const int p : segment.parameters) {
            const Piece piece = layout.piece(p, rank);
            const size_t first =
                before + (piece.shard_offset - segment.shard_offsets[size_t(rank)]) / size_of(segment.type);
            for (size_t i = 0; i < piece.count; ++i) write(p, piece.begin + i, numbers[first + i]);
        }
        before += segment.counts[size_t(rank)];
    }
}

// Numbers without a pattern, equal on all ranks.
inline double unit_noise(int what, int parameter, size_t i) {
    std::minstd_rand random(uint32_t(what) * 7919u + uint32_t(parameter) * 104729u + uint32_t(i) * 31u + 1);
    random.discard(3);
    return (double(random()) / double(random.max()) - 0.5) * (1 + double(i % 5));
}

class QuantizedRank {
  public:
    QuantizedRank(ShardingPlan plan, weftComm_t comm) : plan_(std::move(plan)) {
        (void)weftCommUserRank(comm, &rank);
        (void)weftCommCount(comm, &ranks);
        values_.reserve(100);
        for (UnitPlan& unit : plan_.units)
            for (UnitParameter& parameter : unit.parameters) {
                const int p = int(values_.size());
                std::vector<std::byte>& memory = values_.emplace_back(parameter.facts.count * 8);
                for (size_t i = 0; i < parameter.facts.count; ++i)
                    set_number(memory.data(), parameter.facts.type, i, unit_noise(0, p, i));
                parameter.data = rank == 0 ? memory.data() : nullptr;
            }
        auto made = Sharded::make(ok(), plan_, host_space(), comm);
        if (made)
            sharded = std::move(*made);
        else
            complain(made.status().text());
        // The plan's layouts, for the serial computation.
        units = units_of(plan_, shard_ranks_of(plan_, ranks));
        (void)weftBarrier(comm, nullptr);
    }
    void complain(const std::string& text) {
        if (wrong.empty()) wrong = "rank " + std::to_string(rank) + ": " + text;
    }
    void check(Status status) {
        if (!status) complain(status.text());
    }
    int first_of(int unit) const {
        int first = 0;
        for (int u = 0; u < unit; ++u) first += int(plan_.units[size_t(u)].parameters.size());
        return first;
    }
    float value(int p, size_t i, weftDataType_t type) const { return rounded(type, unit_noise(0, p, i)); }

    // The whole unit has what the messages of all ranks hold, bit by bit.
    void expect_quantized(int number) {
        const Unit& unit = units[size_t(number)];
        const int first = first_of(number);
        for (int r = 0; r < unit.layout.ranks(); ++r) {
            std::vector<float> numbers = shard_of(unit.layout, r, [&](int p, size_t i) {
                return value(first + p, i, unit.layout.parameters()[size_t(p)].type);
            });
            quantize(numbers, 8, plan_.quantization.block);
            each_of_shard(unit.layout, r, numbers, [&](int p, size_t i, float expected) {
                const weftDataType_t type = unit.forms.whole.parameters()[size_t(p)].type;
                auto whole = sharded->parameter(first + p);
                if (!whole) return complain(whole.status().text());
                const double seen = number_at(*whole, type, i);
                if (seen != double(rounded(type, expected)))
                    complain("element " + std::to_string(i) + " of parameter " + std::to_string(first + p) + " is " +
                             std::to_string(seen) + ", not " + std::to_string(expected));
            });
        }
    }
    void expect_exact_values() {
        for (int u = 0; u < int(units.size()); ++u)
            for (int p = 0; p < int(units[size_t(u)].layout.parameters().size()); ++p) {
                const weftDataType_t type = units[size_t(u)].layout.parameters()[size_t(p)].type;
                const ParameterShard shard = sharded->shard(first_of(u) + p);
                for (size_t i = 0; i < shard.count; ++i)
                    if (number_at(shard.values, type, i) != double(value(first_of(u) + p, shard.begin + i, type)))
                        complain("a main value was rounded");
            }
    }
    // element(rank, parameter, i)
    template <class Element>
    void reduce(int number, Element&& element, bool synchronizes = true) {
        check(sharded->gather(number, nullptr));
        const Unit& unit = units[size_t(number)];
        for (int p = 0; p < int(unit.layout.parameters().size()); ++p) {
            const TensorFacts& facts = unit.forms.whole.parameters()[size_t(p)];
            auto gradient = sharded->gradient(first_of(number) + p);
            if (!gradient) return complain(gradient.status().text());
            for (size_t i = 0; i < facts.count; ++i)
                set_number(*gradient, facts.type, i, element(rank, first_of(number) + p, i));
        }
        check(sharded->release(number, false, nullptr));
        check(sharded->reduce_scatter(number, synchronizes, nullptr));
    }
    // expected(parameter, i)
    template <class Expected>
    void expect_gradients(int number, Expected&& expected, double tolerance) {
        const Unit& unit = units[size_t(number)];
        for (int p = 0; p < int(unit.layout.parameters().size()); ++p) {
            const ParameterShard shard = sharded->shard(first_of(number) + p);
            const weftDataType_t type = unit.forms.gradient.parameters()[size_t(p)].type;
            for (size_t i = 0; i < shard.count; ++i) {
                const double seen = number_at(shard.gradient, type, i);
                const double right = expected(first_of(number) + p, shard.begin + i);
                if (!(std::fabs(seen - right) <= tolerance))
                    complain("gradient " + std::to_string(shard.begin + i) + " of parameter " +
                             std::to_string(first_of(number) + p) + " is " + std::to_string(seen) + ", not " +
                             std::to_string(right));
            }
        }
    }

    int rank = 0, ranks = 1;
    std::vector<Unit> units;
    std::shared_ptr<Sharded> sharded;
    std::string wrong;

  private:
    ShardingPlan plan_;
    std::vector<std::vector<std::byte>> values_;
};

template <class Body>
void on_quantized(int ranks, const ShardingPlan& plan, Body&& body) {
    CAPTURE(ranks);
    for (const std::string& wrong : on_threads(ranks, nullptr, [&](weftComm_t comm, int) {
             QuantizedRank rank(plan, comm);
             if (rank.wrong.empty()) body(rank);
             return rank.wrong;
         }))
        CHECK(wrong == "");
}

inline ShardingPlan odd_units() {
    ShardingPlan plan;
    plan.units = {quantized_unit("first", {{weftFloat32, 90, 10}, {weftFloat32, 7}}),
                  quantized_unit("second", {{weftFloat16, 133}, {weftFloat32, 0}, {weftBfloat16, 12, 3}}),
                  quantized_unit("third", {{weftFloat32, 101}}, 1)};
    plan.quantization.block = 16;
    return plan;
}

inline void make_float32(ShardingPlan& plan) {
    for (UnitPlan& unit : plan.units)
        for (UnitParameter& parameter : unit.parameters) parameter.facts.type = weftFloat32;
}

// The gradient shard of a rank of a shard group in which `hop` ranks share a host: the serial computation.
template <class Element>
std::vector<float> serial_reduction(const Unit& unit, int first_rank, int own, int hop, size_t block,
                                    Element&& element) {
    const UnitLayout& layout = unit.forms.reduced;
    const auto add_up = [&](int from, int count) {
        std::vector<float> sum;
        for (int rank = from; rank < from + count; ++rank) {
            auto numbers = shard_of(layout, own, [&](int p, size_t i) { return element(first_rank + rank, p, i); });
            quantize(numbers, 4, block);
            sum.resize(numbers.size());
            for (size_t i = 0; i < sum.size(); ++i) sum[i] += numbers[i];
        }
        return sum;
    };
    if (hop == 0) return add_up(0, layout.ranks());
    std::vector<float> all;
    for (int host = 0; host < layout.ranks() / hop; ++host) {
        auto sum = add_up(host * hop, hop);
        quantize(sum, 4, block);
        all.resize(sum.size());
        for (size_t i = 0; i < sum.size(); ++i) all[i] += sum[i];
    }
    return all;
}

}  // namespace weft::internal::test
