// The assignment of gradients to buckets, and their places in memory.
#include "src/train/bucket_layout.hpp"

#include <algorithm>
#include <random>

#include "src/base/datatype.hpp"
#include "tests/catch.hpp"

using namespace weft::internal;
using namespace weft::internal::train;

namespace {

using Buckets = std::vector<std::vector<int>>;

std::vector<TensorFacts> repeated(size_t times, std::vector<TensorFacts> pattern) {
    std::vector<TensorFacts> tensors;
    for (size_t i = 0; i < times; ++i) tensors.insert(tensors.end(), pattern.begin(), pattern.end());
    return tensors;
}

constexpr size_t mebibyte = size_t(1) << 20;

}  // namespace

TEST_CASE("buckets are those of PyTorch") {
    const auto f32 = [](size_t count) { return TensorFacts{weftFloat32, count}; };
    const auto f64 = [](size_t count) { return TensorFacts{weftFloat64, count}; };
    struct Golden {
        std::vector<TensorFacts> tensors;
        std::vector<size_t> limits;
        Buckets buckets;
    };
    const Golden all[] = {
        {{f32(100), f32(200), f32(100), f32(50)}, {400}, {{0}, {1}, {2}, {3}}},
        {repeated(3, {f32(50), f64(25)}), {400}, {{0, 2}, {1, 3}, {4}, {5}}},
        {repeated(6, {f32(10)}), {40, 80}, {{0}, {1, 2}, {3, 4}, {5}}},
        {repeated(4, {f32(50), f64(25)}), {200, 400}, {{0}, {1}, {2, 4}, {3, 5}, {6}, {7}}},
        {{f32(2 * mebibyte), f32(2 * mebibyte), f32(2 * mebibyte), f32(2 * mebibyte), f32(mebibyte / 4)},
         {mebibyte, 25 * mebibyte},
         {{0}, {1, 2, 3, 4}}},
    };
    for (const Golden& golden : all) CHECK(assign_buckets(golden.tensors, golden.limits) == golden.buckets);
}

TEST_CASE("a cap is the limit of every bucket, and without one the first limit is smaller") {
    CHECK(bucket_limits(0) == std::vector<size_t>{mebibyte, 25 * mebibyte});
    CHECK(bucket_limits(7) == std::vector<size_t>{7});
}

TEST_CASE("with an order the buckets are sorted by the place of their last tensor") {
    const std::vector<TensorFacts> tensors = {
        {weftFloat32, 10}, {weftFloat64, 10}, {weftFloat32, 10}, {weftFloat32, 10}, {weftFloat64, 1}};
    const std::vector<int> order = {1, 3, 2, 4, 0};
    // The bucket of 1 and 4 begins first and is full after the one of 3 and 2.
    CHECK(assign_buckets(tensors, std::vector<size_t>{80}, order) == Buckets{{1}, {3, 2}, {4}, {0}});
    CHECK(assign_buckets(tensors, std::vector<size_t>{88}, order) == Buckets{{1, 4}, {3, 2, 0}});
}

TEST_CASE("tensors without elements are in a bucket") {
    const std::vector<TensorFacts> tensors = {{weftFloat32, 0}, {weftFloat32, 5}, {weftFloat16, 0}};
    const auto buckets = assign_buckets(tensors, std::vector<size_t>{20});
    CHECK(buckets == Buckets{{0, 1}, {2}});
    const BucketLayout layout = lay_out(tensors, buckets);
    CHECK(layout.buckets[0].count == 5);
    CHECK(layout.buckets[1].count == 0);
}

TEST_CASE("gradients lie one behind the other, in buckets that share no cache line") {
    const uint32_t seed = 7;
    CAPTURE(seed);
    std::mt19937 random(seed);
    const weftDataType_t types[] = {weftFloat16, weftBfloat16, weftFloat32, weftFloat64};
    for (int round = 0; round < 50; ++round) {
        std::vector<TensorFacts> tensors(1 + random() % 40);
        for (TensorFacts& tensor : tensors) tensor = {types[random() % 4], random() % 3 ? random() % 300 : 0};
        std::vector<int> order(tensors.size());
        for (size_t i = 0; i < order.size(); ++i) order[i] = int(i);
        std::shuffle(order.begin(), order.end(), random);
        const auto assignment =
            assign_buckets(tensors, std::vector<size_t>{1 + random() % 500, 1 + random() % 900}, order);
        const BucketLayout layout = lay_out(tensors, assignment);
        std::vector<int> seen;
        size_t end = 0;
        for (size_t b = 0; b < layout.buckets.size(); ++b) {
            const Bucket& bucket = layout.buckets[b];
            REQUIRE(bucket.begin_bytes % 128 == 0);
            REQUIRE(bucket.begin_bytes >= end);
            size_t count = 0;
            for (size_t i = 0; i < bucket.parameters.size(); ++i) {
                const int index = bucket.parameters[i];
                const Place& place = layout.places[size_t(index)];
                const size_t bytes = size_of(bucket.type);
                REQUIRE(tensors[size_t(index)].type == bucket.type);
                REQUIRE(bucket.offsets[i] == count);
                REQUIRE(place.bucket == int(b));
                REQUIRE(place.begin_bytes == bucket.begin_bytes + count * bytes);
                REQUIRE(place.bytes == tensors[size_t(index)].count * bytes);
                count += tensors[size_t(index)].count;
                seen.push_back(index);
            }
            REQUIRE(bucket.count == count);
            end = bucket.begin_bytes + count * size_of(bucket.type);
        }
        REQUIRE(layout.bytes >= end);
        REQUIRE(layout.bytes <= most_layout_bytes(tensors));
        std::sort(seen.begin(), seen.end());
        std::sort(order.begin(), order.end());
        REQUIRE(seen == order);
    }
}
