// Sharded models whose messages are quantised (ZeRO++), against a serial computation of the same roundings.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/amount.hpp"
#include "tests/train/quantized_rank.hpp"

using namespace weft::internal;
using namespace weft::internal::test;
using namespace weft::internal::train;

TEST_CASE("int4 numbers are whole multiples of their block's scale, two in a byte") {
    Int4Codec codec(4);
    const std::vector<float> numbers = {7, -7, 3.4f, -0.6f, 0, 0, 0, 0, -14, 2, 5};
    REQUIRE(codec.bytes(11) == 3 * sizeof(float) + 6);
    std::vector<std::byte> message(codec.bytes(11));
    codec.encode(numbers, message.data());
    std::vector<float> decoded(11, 99);
    codec.decode(message.data(), decoded);
    CHECK(decoded == std::vector<float>{7, -7, 3, -1, 0, 0, 0, 0, -14, 2, 4});
    CHECK(message[12] == std::byte(0x97));
    std::vector<float> broken = numbers;
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
        broken[1] = bad;
        codec.encode(broken, message.data());
        codec.decode(message.data(), decoded);
        CHECK(std::isnan(decoded[0]));
        CHECK(decoded[8] == -14);
    }
    for (const auto& [bits, steps] : {std::pair(4, 14.0), std::pair(8, 254.0)}) {
        const WholeNumbers form = {bits, 32};
        std::vector<float> random(100);
        for (size_t i = 0; i < random.size(); ++i) random[i] = float(unit_noise(5, bits, i));
        std::vector<std::byte> memory(form.bytes(100));
        std::vector<float> back(100);
        form.with_codec([&](const Codec& each) {
            each.encode(random, memory.data());
            each.decode(memory.data(), back);
        });
        for (size_t begin = 0; begin < 100; begin += 32) {
            const auto block = std::span(random).subspan(begin, std::min<size_t>(32, 100 - begin));
            float largest = 0;
            for (const float number : block) largest = std::max(largest, std::fabs(number));
            for (size_t i = begin; i < begin + block.size(); ++i)
                CHECK(std::fabs(random[i] - back[i]) <= double(largest) / steps * 1.000001);
        }
    }
}

TEST_CASE("quantised gathers give all ranks the bits of one serial computation, and main values stay exact") {
    const MixedTypes forms[] = {
        {}, {weftBfloat16, weftFloat32, weftNumTypes}, {weftFloat16, weftNumTypes, weftNumTypes}};
    for (int ranks = 1; ranks <= 4; ++ranks)
        for (const Sharding sharding : {Sharding::flat, Sharding::rows})
            for (const MixedTypes& types : forms) {
                if (small() && ranks < 3) continue;
                ShardingPlan plan = odd_units();
                plan.sharding = sharding;
                plan.types = types;
                plan.quantization.gather_bits = 8;
                if (types.mixes()) make_float32(plan);
                plan.keeps_wholes = ranks == 3;
                if (ranks == 4) plan.shard_ranks = 2;
                CAPTURE(int(sharding), int(types.parameter));
                on_quantized(ranks, plan, [](QuantizedRank& rank) {
                    for (int step = 0; step < 2; ++step) {  // the second one prefetches
                        for (int unit = 0; unit < 3; ++unit) {
                            rank.check(rank.sharded->gather(unit, nullptr));
                            rank.expect_quantized(unit);
                            rank.check(rank.sharded->release(unit, true, nullptr));
                        }
                        for (int unit = 2; unit >= 0; --unit) {
                            rank.check(rank.sharded->gather(unit, nullptr));
                            rank.expect_quantized(unit);
                            rank.check(rank.sharded->release(unit, false, nullptr));
                        }
                        rank.check(rank.sharded->finish(nullptr));
                        rank.expect_exact_values();
                    }
                });
            }
}

TEST_CASE("a quantised gather moves a quarter of float32's bytes, and the scales") {
    ShardingPlan plan;
    plan.units = {quantized_unit("unit", {{weftFloat32, 4096}})};
    for (const int bits : {0, 8}) {
        plan.quantization.gather_bits = bits;
        on_quantized(4, plan, [&](QuantizedRank& rank) {
            rank.check(rank.sharded->gather(0, nullptr));
            rank.check(rank.sharded->release(0, false, nullptr));
            rank.check(rank.sharded->finish(nullptr));
            const uint64_t expected = bits == 8 ? 3 * (1024 + 4 * 4) : 3 * 4096;
            if (const auto bytes = rank.sharded->counters().gathered.bytes; bytes != expected)
                rank.complain(std::to_string(bytes) + " bytes");
        });
    }
}

TEST_CASE("with reshard groups of a host the backward gathers send nothing between hosts") {
    for (const int bits : {0, 8}) {
        ShardingPlan plan = odd_units();
        for (UnitPlan& unit : plan.units) unit.reshard_ranks = 2;
        plan.quantization.gather_bits = bits;
        plan.hosts = {0, 0, 1, 1};
        on_quantized(4, plan, [&](QuantizedRank& rank) {
            const auto remote = [&] { return rank.sharded->counters().gathered.remote_bytes; };
            for (int step = 0; step < 2; ++step) {
                for (int unit = 0; unit < 3; ++unit) {
                    const uint64_t before = remote();
                    rank.check(rank.sharded->gather(unit, nullptr));
                    if (bits) rank.expect_quantized(unit);
                    rank.check(rank.sharded->release(unit, true, nullptr));
                    // From the second step on the unit may have been gathered ahead.
                    if (step == 0 && remote() == before) rank.complain("a forward gather without the other host");
                }
                const uint64_t before = remote(), all = rank.sharded->counters().gathered.bytes;
                for (int unit = 2; unit >= 0; --unit) {
                    rank.check(rank.sharded->gather(unit, nullptr));
                    if (bits) rank.expect_quantized(unit);
                    rank.check(rank.sharded->release(unit, false, nullptr));
                }
                if (remote() != before) rank.complain("bytes between hosts in the backward pass");
                if (rank.sharded->counters().gathered.bytes == all) rank.complain("no bytes in the backward pass");
                rank.check(rank.sharded->finish(nullptr));
            }
        });
    }
}

TEST_CASE("int4 gradients that int4 can hold are summed exactly, in one hop and in two") {
    // A rank's gradient is its own factor times numbers from -7 to 7, with a 7 in each block.
    const auto number = [](int p, size_t i) { return i % 4 == 0 ? 7.0 : double((i * 5 + size_t(p) * 3) % 15) - 7; };
    const auto factor = [](int rank) { return double(rank % 3 + 1); };
    const std::vector<std::vector<int>> places = {{}, {0, 0, 1, 1}, {0, 0, 0, 1}, {0, 1, 0, 1}, {0, 1, 2, 3}};
    for (const std::vector<int>& hosts : places)
        for (const int shard_ranks : {4, 2})
            for (const Sharding sharding : {Sharding::flat, Sharding::rows}) {
                if (small() && shard_ranks == 2 && sharding == Sharding::rows) continue;
                ShardingPlan plan;
                plan.units = {quantized_unit("first", {{weftFloat32, 400, 100}, {weftFloat32, 64, 16}}),
                              quantized_unit("second", {{weftFloat32, 512, 128}})};
                plan.sharding = sharding;
                plan.shard_ranks = shard_ranks;
                plan.quantization = {0, 4, 8};
                plan.hosts = hosts;
                CAPTURE(hosts, shard_ranks, int(sharding));
                on_quantized(4, plan, [&](QuantizedRank& rank) {
                    for (int step = 1; step <= 2; ++step) {  // the second one is added
                        for (int unit = 1; unit >= 0; --unit)
                            rank.reduce(unit, [&](int own, int p, size_t i) { return factor(own) * number(p, i); });
                        rank.check(rank.sharded->finish(nullptr));
                        for (int unit = 0; unit < 2; ++unit)
                            rank.expect_gradients(
                                unit, [&](int p, size_t i) { return step * (1 + 2 + 3 + 1) * number(p, i) / 4; }, 0);
                    }
                });
            }
}

TEST_CASE("int4 reductions have the bits of a serial computation, and errors within the blocks' scales") {
    const MixedTypes forms[] = {
        {}, {weftBfloat16, weftFloat32, weftNumTypes}, {weftNumTypes, weftNumTypes, weftFloat16}};
    for (int ranks = 1; ranks <= 4; ++ranks)
        for (const Sharding sharding : {Sharding::flat, Sharding::rows})
            for (const MixedTypes& types : forms)
                for (const bool apart : {false, true}) {
                    if ((apart && ranks != 4) || (small() && ranks < 3)) continue;
                    ShardingPlan plan = odd_units();
                    plan.sharding = sharding;
                    plan.types = types;
                    plan.quantization.reduce_bits = 4;
                    if (types.mixes()) make_float32(plan);
                    if (apart) plan.hosts = {0, 0, 1, 1};
                    CAPTURE(int(sharding), int(types.parameter), apart);
                    on_quantized(ranks, plan, [&](QuantizedRank& rank) {
                        for (int number = 2; number >= 0; --number) {
                            const Unit& unit = rank.units[size_t(number)];
                            const int first = rank.first_of(number);
                            const auto type = [&](int p) { return unit.forms.whole.parameters()[size_t(p)].type; };
                            rank.reduce(number, [](int own, int p, size_t i) { return unit_noise(own + 1, p, i); });
                            rank.check(rank.sharded->finish(nullptr));
                            const auto sums =
                                serial_reduction(unit, 0, rank.rank, apart ? 2 : 0, plan.quantization.block,
                                                 [&](int own, int p, size_t i) {
                                                     return rounded(type(p), unit_noise(own + 1, first + p, i));
                                                 });
                            std::vector<std::vector<double>> expected(unit.layout.parameters().size());
                            each_of_shard(unit.forms.reduced, rank.rank, sums, [&](int p, size_t i, float sum) {
                                auto& numbers = expected[size_t(p)];
                                numbers.resize(std::max(numbers.size(), i + 1));
                                // float16 is divided in two steps.
                                const auto reduced = unit.forms.reduced.parameters()[size_t(p)].type;
                                const auto output = unit.forms.gradient.parameters()[size_t(p)].type;
                                numbers[i] = rounded(output, rounded(reduced, sum * float(1.0 / rank.ranks)));
                            });
                            rank.expect_gradients(
                                number, [&](int p, size_t i) { return expected[size_t(p - first)][i]; }, 2e-2);
                            // Of float32 the bits are equal.
                            if (unit.forms.gradient.segments()[0].type == weftFloat32 &&
                                unit.forms.gradient.segments().size() == 1)
                                rank.expect_gradients(
                                    number, [&](int p, size_t i) { return expected[size_t(p - first)][i]; }, 0);
                            // Each contribution of at most 2.5 is rounded by 1/14 of that, and so are sums of hosts.
                            const double bound = 2.5 / 14 * (apart ? 2.1 : 1) + 0.02;
                            rank.expect_gradients(
                                number,
                                [&](int p, size_t i) {
                                    double sum = 0;
                                    for (int own = 0; own < rank.ranks; ++own) sum += unit_noise(own + 1, p, i);
                                    return sum / rank.ranks;
                                },
                                bound);
                        }
                    });
                }
}

TEST_CASE("int4 gradients take an eighth of float32's bytes, and fewer between hosts in two hops") {
    ShardingPlan plan;
    plan.units = {quantized_unit("unit", {{weftFloat32, 4096}})};
    plan.hosts = {0, 0, 1, 1};
    constexpr uint64_t message = 1024 / 2 + 4 * 4;
    for (const auto& [bits, two_hops] : {std::pair(0, true), std::pair(4, true), std::pair(4, false)}) {
        plan.quantization.reduce_bits = bits;
        if (!two_hops) plan.hosts = {0, 1, 0, 1};
        on_quantized(4, plan, [&, bits = bits, two_hops = two_hops](QuantizedRank& rank) {
            rank.reduce(0, [](int own, int, size_t i) { return double(own) + double(i % 3); });
            rank.check(rank.sharded->finish(nullptr));
            const Traffic seen = rank.sharded->counters().reduced;
            const Traffic expected = bits == 0  ? Traffic{3 * 4096, 2 * 4096}
                                     : two_hops ? Traffic{2 * message + message, message}
                                                : Traffic{3 * message, 2 * message};
            if (seen.bytes != expected.bytes || seen.remote_bytes != expected.remote_bytes)
                rank.complain(std::to_string(seen.bytes) + " and " + std::to_string(seen.remote_bytes) + " bytes");
        });
    }
}

TEST_CASE("copies of the model add up int4 sums, and keep partial ones") {
    for (const double divisor : {0.0, 3.0}) {
        ShardingPlan plan;
        plan.units = {quantized_unit("unit", {{weftFloat32, 256}})};
        plan.shard_ranks = 2;
        plan.divisor = divisor;
        plan.quantization = {8, 4, 8};
        on_quantized(4, plan, [&](QuantizedRank& rank) {
            const auto number = [](size_t i) { return i % 4 == 0 ? 7.0 : double(i % 15) - 7; };
            for (const bool synchronizes : {false, true})
                rank.reduce(
                    0, [&](int own, int, size_t i) { return (own + 1) * number(i); }, synchronizes);
            rank.check(rank.sharded->finish(nullptr));
            rank.expect_gradients(
                0, [&](int, size_t i) { return 2 * 10 * number(i) / (divisor > 0 ? divisor : 4); }, 1e-4);
        });
    }
}

TEST_CASE("a gradient that is not finite reaches its owner as NaN, in one hop and in two") {
    for (const bool apart : {false, true}) {
        ShardingPlan plan;
        plan.units = {quantized_unit("unit", {{weftFloat32, 256}})};
        plan.quantization = {0, 4, 8};
        if (apart) plan.hosts = {0, 0, 1, 1};
        on_quantized(4, plan, [](QuantizedRank& rank) {
            rank.reduce(0, [](int own, int, size_t i) {
                return own == 1 && i == 130 ? std::numeric_limits<double>::infinity() : 1.0;
            });
            rank.check(rank.sharded->finish(nullptr));
            const ParameterShard shard = rank.sharded->shard(0);
            for (size_t i = 0; i < shard.count; ++i) {
                const size_t at = shard.begin + i;
                if (std::isfinite(static_cast<const float*>(shard.gradient)[i]) != (at < 128 || at >= 136))
                    rank.complain("element " + std::to_string(at));
            }
        });
    }
}

TEST_CASE("units that cannot be quantised, and ranks with other settings, are errors on all ranks") {
    const auto refused = [](ErrorId id, auto&& change) {
        for (const std::string& wrong : on_threads(3, nullptr, [&](weftComm_t comm, int rank) -> std::string {
                 ShardingPlan plan;
                 plan.units = {quantized_unit("unit", {{weftFloat32, 0}})};
                 change(plan, rank);
                 auto made = Sharded::make(ok(), plan, host_space(), comm);
                 if (made) return "no error";
                 return made.status().id() == id ? "" : made.status().text();
             }))
            CHECK(wrong == "");
    };
    refused(error::argument_config, [](ShardingPlan& plan, int) {
        plan.quantization.gather_bits = 8;
        plan.units[0].parameters[0].facts.type = weftFloat64;
    });
    refused(error::argument_config, [](ShardingPlan& plan, int) {
        plan.quantization.reduce_bits = 4;
        plan.units[0].parameters[0].facts.type = weftInt32;
    });
    refused(error::argument_config, [](ShardingPlan& plan, int) {
        plan.quantization = {0, 4, 33};
        plan.on_device = true;
    });
    refused(error::train_model,
            [](ShardingPlan& plan, int rank) { plan.quantization.gather_bits = rank == 2 ? 8 : 0; });
    refused(error::train_model, [](ShardingPlan& plan, int rank) { plan.quantization.block = rank == 1 ? 64 : 32; });
}
