// How units are laid out, gradients divided, and gathers predicted. No communication.
#include <algorithm>
#include <cmath>
#include <random>
#include <set>

#include "src/base/datatype.hpp"
#include "src/train/memory_space.hpp"
#include "src/train/sharding/gather_trace.hpp"
#include "src/train/sharding/gradient_division.hpp"
#include "src/train/sharding/unit_layout.hpp"
#include "tests/amount.hpp"
#include "tests/catch.hpp"

using namespace weft::internal;
using namespace weft::internal::test;
using namespace weft::internal::train;

namespace {

std::vector<TensorFacts> random_parameters(std::mt19937& random) {
    const weftDataType_t types[] = {weftFloat16, weftBfloat16, weftFloat32, weftFloat64};
    std::vector<TensorFacts> parameters(1 + random() % 8);
    for (TensorFacts& facts : parameters) {
        facts.type = types[random() % 4];
        const size_t rows = random() % 20, columns = 1 + random() % 5;
        facts.count = rows * columns;
        facts.rows = random() % 2 ? rows : 0;
    }
    return parameters;
}

// Whether two ranges of bytes share one.
struct Range {
    size_t begin, end;
};
bool disjoint(std::vector<Range> ranges) {
    std::erase_if(ranges, [](const Range& each) { return each.begin == each.end; });
    std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
    for (size_t i = 1; i < ranges.size(); ++i)
        if (ranges[i].begin < ranges[i - 1].end) return false;
    return true;
}

// The pieces of all ranks make up each parameter once, lie in the shard without overlap, aligned, and in the segment of
// their type.
void check_layout(const UnitLayout& layout) {
    std::vector<size_t> seen(layout.parameters().size(), 0);
    for (int rank = 0; rank < layout.ranks(); ++rank) {
        std::vector<Range> ranges;
        for (const Segment& segment : layout.segments()) {
            const size_t size = size_of(segment.type);
            const size_t begin = segment.shard_offsets[size_t(rank)];
            const size_t end = begin + segment.counts[size_t(rank)] * size;
            REQUIRE(end <= layout.shard_bytes());
            for (const int parameter : segment.parameters) {
                const Piece piece = layout.piece(parameter, rank);
                if (piece.count == 0) continue;
                REQUIRE(piece.begin == seen[size_t(parameter)]);
                seen[size_t(parameter)] += piece.count;
                REQUIRE(piece.shard_offset % size == 0);
                REQUIRE(piece.shard_offset >= begin);
                REQUIRE(piece.shard_offset + piece.count * size <= end);
                ranges.push_back({piece.shard_offset, piece.shard_offset + piece.count * size});
            }
        }
        REQUIRE(disjoint(ranges));
    }
    std::vector<Range> wholes;
    for (size_t p = 0; p < seen.size(); ++p) {
        const TensorFacts& facts = layout.parameters()[p];
        REQUIRE(seen[p] == facts.count);
        REQUIRE(layout.whole_offset(int(p)) % size_of(facts.type) == 0);
        wholes.push_back(
            {layout.whole_offset(int(p)), layout.whole_offset(int(p)) + facts.count * size_of(facts.type)});
        REQUIRE(wholes.back().end <= layout.whole_bytes());
    }
    REQUIRE(disjoint(wholes));
}

}  // namespace

TEST_CASE("rows are those of PyTorch's FSDP2") {
    const auto counts = [](size_t rows) {
        std::vector<size_t> counts;
        for (int rank = 0; rank < 4; ++rank) counts.push_back(rows_of(rows, 4, rank).count);
        return counts;
    };
    CHECK(counts(10) == std::vector<size_t>{3, 3, 3, 1});
    CHECK(counts(5) == std::vector<size_t>{2, 2, 1, 0});
    CHECK(counts(9) == std::vector<size_t>{3, 3, 3, 0});
    CHECK(counts(3) == std::vector<size_t>{1, 1, 1, 0});
    CHECK(counts(0) == std::vector<size_t>{0, 0, 0, 0});
}

TEST_CASE("with rows, a shard has whole rows of each parameter and the padding of the first rank") {
    const UnitLayout layout({{weftFloat32, 30, 10}, {weftFloat32, 5}}, 4, Sharding::rows);
    CHECK(layout.shard_bytes() == (3 * 3 + 2) * 4);
    CHECK(layout.piece(0, 0) == Piece{0, 9, 0});
    CHECK(layout.piece(0, 3) == Piece{27, 3, 0});
    CHECK(layout.piece(1, 2) == Piece{4, 1, 36});
    CHECK(layout.piece(1, 3).count == 0);
    CHECK(layout.whole_bytes() == 35 * 4);
}

TEST_CASE("with flat sharding, the shards one behind the other are the unit and its padding") {
    const UnitLayout layout({{weftFloat16, 3}, {weftFloat32, 10}, {weftFloat64, 1}}, 2, Sharding::flat);
    // 8 bytes of float64, 40 of float32, 6 of float16: 54 bytes, 32 for each rank.
    CHECK(layout.shard_bytes() == 32);
    CHECK(layout.whole_bytes() == 64);
    CHECK(layout.whole_offset(2) == 0);
    CHECK(layout.whole_offset(1) == 8);
    CHECK(layout.whole_offset(0) == 48);
    CHECK(layout.piece(1, 0) == Piece{0, 6, 8});
    CHECK(layout.piece(1, 1) == Piece{6, 4, 0});
    CHECK(layout.piece(0, 1) == Piece{0, 3, 16});
    CHECK(layout.segments()[1].counts == std::vector<size_t>{6, 4});
}

TEST_CASE("random units are laid out without gaps in parameters and without overlap") {
    std::mt19937 random(seed());
    for (int i = 0; i < (small() ? 200 : 2000); ++i)
        for (const Sharding sharding : {Sharding::flat, Sharding::rows}) {
            const UnitLayout layout(random_parameters(random), 1 + int(random() % 9), sharding);
            check_layout(layout);
            if (sharding == Sharding::rows) continue;
            CHECK(layout.whole_bytes() == layout.shard_bytes() * size_t(layout.ranks()));
            for (size_t p = 0; p < layout.parameters().size(); ++p)
                for (int rank = 0; rank < layout.ranks(); ++rank) {
                    const Piece piece = layout.piece(int(p), rank);
                    if (piece.count == 0) continue;
                    CHECK(size_t(rank) * layout.shard_bytes() + piece.shard_offset ==
                          layout.whole_offset(int(p)) + piece.begin * size_of(layout.parameters()[p].type));
                }
        }
}

TEST_CASE("float16 and float64 gradients are divided in PyTorch's two steps") {
    const auto factors = [](int ranks) {
        const GradientDivision division = gradient_division(weftFloat16, ranks, ranks);
        CHECK(gradient_division(weftFloat64, ranks, ranks) == division);
        return std::pair(division.before, division.after);
    };
    CHECK(factors(1) == std::pair(1.0, 1.0));
    CHECK(factors(2) == std::pair(2.0, 1.0));
    CHECK(factors(3) == std::pair(2.0, 1.5));
    CHECK(factors(4) == std::pair(2.0, 2.0));
    CHECK(factors(6) == std::pair(4.0, 1.5));
    CHECK(factors(8) == std::pair(4.0, 2.0));
    CHECK(factors(12) == std::pair(4.0, 3.0));
    CHECK(factors(16) == std::pair(4.0, 4.0));
    CHECK(factors(64) == std::pair(8.0, 8.0));
}

TEST_CASE("host memory is divided, and not multiplied by a reciprocal") {
    const auto space = host_space();
    uint16_t halves[] = {0x4200, 0x4880, 0x0000};  // 3, 9, 0
    REQUIRE(space->scale(halves, 3, weftFloat16, 1, 3));
    CHECK((halves[0] == 0x3c00 && halves[1] == 0x4200 && halves[2] == 0));
    double doubles[] = {49, 98};
    REQUIRE(space->scale(doubles, 2, weftFloat64, 1, 49));
    CHECK((doubles[0] == 1 && doubles[1] == 2));  // 49 * (1 / 49) is less than 1
    REQUIRE(space->scale(doubles, 2, weftFloat64, 3, 1));
    CHECK((doubles[0] == 3 && doubles[1] == 6));
    REQUIRE(space->scale(nullptr, 0, weftFloat64, 1, 49));
}

TEST_CASE("other gradients are averaged, or scaled by the caller's divisor") {
    using Reduction = GradientDivision::Reduction;
    for (const weftDataType_t type : {weftFloat32, weftBfloat16}) {
        CHECK(gradient_division(type, 1, 1) == GradientDivision{});
        CHECK(gradient_division(type, 4, 4).reduction == Reduction::average);
        CHECK(gradient_division(type, 4, 1).reduction == Reduction::sum);
        CHECK(gradient_division(type, 4, 10) == GradientDivision{Reduction::scaled_sum, 10, 1});
    }
}

TEST_CASE("a trace predicts the next gather while the order is that of the last iteration") {
    GatherTrace trace;
    const std::vector<int> order = {0, 1, 2, 2, 1, 0};
    for (const int unit : order) CHECK_FALSE(trace.gathered(unit));
    trace.finish();
    for (size_t i = 0; i < order.size(); ++i) {
        const std::optional<int> next = trace.gathered(order[i]);
        if (i + 1 < order.size())
            CHECK(next == order[i + 1]);
        else
            CHECK_FALSE(next);
    }
    CHECK_FALSE(trace.gathered(7));  // one more than before
    trace.finish();
    CHECK(trace.gathered(0) == 1);
    CHECK_FALSE(trace.gathered(2));  // another order
    CHECK_FALSE(trace.gathered(2));
    trace.finish();
    CHECK(trace.gathered(0) == 2);
    CHECK(trace.gathered(2) == 2);
}

TEST_CASE("the parts of a unit of one type are equal, also with padding") {
    for (int ranks = 1; ranks <= 5; ++ranks)
        for (const size_t count : {1, 37, 101}) {
            const UnitLayout layout({{weftFloat32, count}, {weftFloat32, 3}}, ranks, Sharding::flat);
            CHECK(layout.segments()[0].counts == std::vector<size_t>(size_t(ranks), layout.shard_bytes() / 4));
        }
}

TEST_CASE("the memory of mixed-precision Adam in each stage is DeepSpeed's") {
    // 7.5e9 parameters on 64 ranks: bfloat16 values and gradients, and 12 bytes of optimizer states for each element.
    constexpr size_t parameters = 7'500'000'000;
    const UnitLayout layout({{weftBfloat16, parameters}}, 64, Sharding::flat);
    const auto whole = double(layout.whole_bytes()), shard = double(layout.shard_bytes());
    const double states = 12 * shard / 2;
    const auto is = [](double bytes, double gigabytes) { return std::abs(bytes / 1e9 - gigabytes) < gigabytes / 100; };
    CHECK(is(16.0 * parameters, 120));
    CHECK(is(whole + whole + states, 31.4));
    CHECK(is(whole + shard + states, 16.6));
    CHECK(is(shard + shard + states, 1.88));
}
