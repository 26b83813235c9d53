// Data-parallel training of ranks that are threads, against the average of all ranks' gradients in doubles.
#include <weft/train.h>

#include <atomic>

#include "src/base/arithmetic.hpp"
#include "tests/comm/on_threads.hpp"
#include "tests/train/trained_rank.hpp"

using namespace weft::internal;
using namespace weft::internal::test;

namespace {

weftTrainDdpConfig_t small_buckets() {
    weftTrainDdpConfig_t config = WEFT_TRAIN_DDP_CONFIG_INITIALIZER;
    config.bucketCapBytes = 600;
    return config;
}

// The sum of the ranks below `ranks`.
double sum(int ranks, int iteration, int parameter, size_t i) {
    double sum = 0;
    for (int rank = 0; rank < ranks; ++rank) sum += gradient_element(rank, iteration, parameter, i);
    return sum;
}

// The body of each rank, with its TrainedRank. All ranks must be content.
template <class Body>
void on_trained(int ranks, const weftTrainDdpConfig_t& config, Body&& body) {
    CAPTURE(ranks);
    for (const std::string& wrong : on_threads(ranks, nullptr, [&](weftComm_t comm, int) {
             TrainedRank rank(comm, config);
             if (rank.wrong().empty()) body(rank);
             return rank.wrong();
         }))
        CHECK(wrong == "");
}

// The relative error of a hook.
double lossy(weftTrainHook_t hook) {
    return hook == weftTrainHookFloat16 ? 0x1p-10 : hook == weftTrainHookBfloat16 ? 0x1p-7 : 0;
}

int bucket_of(const TrainedRank& rank, int parameter) {
    int bucket = -1;
    return weftTrainDdpGetBucket(rank.ddp(), parameter, &bucket) == weftSuccess ? bucket : -1;
}

}  // namespace

TEST_CASE("gradients are averaged over all ranks, before and after the rebuild, in every bucket size") {
    for (int ranks = 1; ranks <= 4; ++ranks)
        for (const size_t cap : {size_t(0), size_t(1), size_t(600)}) {
            weftTrainDdpConfig_t config = WEFT_TRAIN_DDP_CONFIG_INITIALIZER;
            config.bucketCapBytes = cap;
            on_trained(ranks, config, [&](TrainedRank& rank) {
                for (int iteration = 0; iteration < 3; ++iteration) {
                    rank.begin();
                    rank.backward(iteration);
                    rank.finish();
                    rank.expect([&](int p, size_t i) { return sum(ranks, iteration, p, i) / ranks; }, "average");
                }
            });
        }
}

TEST_CASE("all ranks begin with the parameters and buffers of rank 0, and get its buffers at each iteration") {
    on_trained(3, small_buckets(), [](TrainedRank& rank) {
        for (int p = 0; p < rank.parameters(); ++p)
            if (p != 4 && rank.parameter_value(p) != p)
                rank.complain("another value of parameter " + std::to_string(p));
        for (int iteration = 0; iteration < 2; ++iteration) {
            if (rank.buffer() != (iteration == 0 ? 1000 : 50 + rank.rank())) rank.complain("another buffer");
            rank.buffer() = 20 + rank.rank();
            rank.begin(weftTrainAccumulate);
            if (rank.buffer() != 20 + rank.rank()) rank.complain("accumulation broadcast the buffer");
            rank.finish();
            rank.begin();
            if (rank.buffer() != 20) rank.complain("the buffer was not broadcast");
            rank.backward(iteration);
            rank.finish();
            rank.buffer() = 50 + rank.rank();
        }
    });
}

TEST_CASE("the first iteration has a bucket for each type, and later ones follow the order of rank 0's reports") {
    on_trained(2, small_buckets(), [](TrainedRank& rank) {
        const auto backward = [&] {
            for (const int p : {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}) {
                const int own = rank.rank() == 0 ? p : 9 - p;
                rank.compute(own, 0);
                rank.ready(own);
            }
            rank.finish();
        };
        // Reversed: the type whose first parameter is the last one comes first.
        rank.begin();
        const int first[] = {3, 3, 2, 1, 3, 0, 1, 3, 0, 2};
        for (int p = 0; p < 10; ++p)
            if (bucket_of(rank, p) != first[p]) rank.complain("first bucket of " + std::to_string(p));
        backward();
        rank.begin();
        // Full at 600 bytes: {0, 1}, then {3, 6}, {5, 8}, {2, 9}; {4, 7} is left, and its last place is before 8's.
        const int second[] = {0, 0, 4, 1, 2, 3, 1, 2, 3, 4};
        for (int p = 0; p < 10; ++p)
            if (bucket_of(rank, p) != second[p]) rank.complain("second bucket of " + std::to_string(p));
        backward();
        rank.expect([&](int p, size_t i) { return sum(2, 0, p, i) / 2; }, "average");
    });
}

TEST_CASE("iterations that accumulate send nothing, and the last one averages the sums") {
    for (const weftTrainHook_t hook : {weftTrainHookAverage, weftTrainHookFloat16, weftTrainHookBfloat16})
        for (const int steps : {1, 3}) {
            weftTrainDdpConfig_t config = small_buckets();
            config.hook = hook;
            on_trained(3, config, [&](TrainedRank& rank) {
                int iteration = 0;
                for (int step = 0; step < 3; ++step) {
                    const int first = iteration;
                    for (int batch = 0; batch < steps; ++batch, ++iteration) {
                        const bool last = batch == steps - 1;
                        rank.begin(last ? weftTrainSynchronize : weftTrainAccumulate);
                        rank.backward(iteration, batch > 0);
                        rank.finish();
                        if (last) continue;
                        rank.expect(
                            [&](int p, size_t i) {
                                double own = 0;
                                for (int k = first; k <= iteration; ++k) own += gradient_element(rank.rank(), k, p, i);
                                return own;
                            },
                            "accumulated", 0);
                    }
                    rank.expect(
                        [&](int p, size_t i) {
                            double all = 0;
                            for (int k = first; k < iteration; ++k) all += sum(3, k, p, i);
                            return all / 3;
                        },
                        "average", 2, lossy(hook));
                }
            });
        }
}

TEST_CASE("with findUnused a gradient may be missing: it counts as zero, and one that all ranks miss stays as it was") {
    weftTrainDdpConfig_t config = small_buckets();
    config.findUnused = 1;
    on_trained(3, config, [](TrainedRank& rank) {
        // Parameter 5 on no rank, 3 on rank 1 only, the rest everywhere.
        const auto uses = [](int r, int p) { return p != 5 && p != 8 && (p != 3 || r == 1); };
        for (int iteration = 0; iteration < 3; ++iteration) {
            rank.compute(5, 77);  // its own memory
            rank.begin();
            for (int p = 9; p >= 0; --p)
                if (uses(rank.rank(), p)) {
                    rank.compute(p, iteration);
                    rank.ready(p);
                }
            rank.finish();
            rank.expect(
                [&](int p, size_t i) {
                    if (p == 5) return gradient_element(rank.rank(), 77, p, i);
                    if (p == 3) return gradient_element(1, iteration, p, i) / 3;
                    return p == 8 ? 0 : sum(3, iteration, p, i) / 3;
                },
                "average");
            for (int p = 0; p < 10; ++p) {
                int used = -1;
                rank.check(weftTrainDdpGetUsed(rank.ddp(), p, &used));
                if (used != (p == 5 || p == 8 ? 0 : 1)) rank.complain("used " + std::to_string(p));
            }
        }
    });
}

TEST_CASE("with findUnused a gradient that an accumulating iteration reported counts as used") {
    weftTrainDdpConfig_t config = small_buckets();
    config.findUnused = 1;
    on_trained(2, config, [](TrainedRank& rank) {
        for (int step = 0; step < 2; ++step) {
            rank.begin(weftTrainAccumulate);
            rank.backward(10 + step);
            rank.finish();
            rank.begin();
            for (int p = 0; p < 5; ++p) {
                rank.compute(p, 20 + step, true);
                rank.ready(p);
            }
            rank.finish();
            rank.expect(
                [&](int p, size_t i) { return (sum(2, 10 + step, p, i) + (p < 5 ? sum(2, 20 + step, p, i) : 0)) / 2; },
                "average");
        }
    });
}

TEST_CASE("a static graph learns which gradients are reported, and how often") {
    weftTrainDdpConfig_t config = small_buckets();
    config.staticGraph = 1;
    on_trained(2, config, [](TrainedRank& rank) {
        // Parameter 9 is reported twice, 8 on no rank, and 2 on rank 1 only.
        for (int iteration = 0; iteration < 3; ++iteration) {
            rank.begin();
            for (const int p : {9, 7, 6, 5, 4, 9, 3, 2, 1, 0})
                if (p != 2 || rank.rank() == 1) {
                    rank.compute(p, iteration);
                    rank.ready(p);
                }
            rank.finish();
            rank.expect(
                [&](int p, size_t i) {
                    if (p == 2) return gradient_element(1, iteration, p, i) / 2;
                    return p == 8 ? 0 : sum(2, iteration, p, i) / 2;
                },
                "average");
        }
        rank.begin();
        if (weftTrainDdpGradientReady(rank.ddp(), 8, nullptr) == weftSuccess) rank.complain("8 was accepted");
        if (weftTrainDdpFinish(rank.ddp(), nullptr) == weftSuccess) rank.complain("missing reports were accepted");
        for (const int p : {9, 7, 6, 5, 4, 9, 3, 2, 1, 0})
            if (p != 2 || rank.rank() == 1) rank.ready(p);
        rank.finish();
    });
}

TEST_CASE("ranks with fewer inputs join, and the others go on with their zeros") {
    for (const weftTrainHook_t hook : {weftTrainHookAverage, weftTrainHookBfloat16})
        for (const auto divisor : {weftTrainDivideByRanks, weftTrainDivideByActive})
            for (const int unused : {0, 1}) {
                weftTrainDdpConfig_t config = small_buckets();
                config.join = 1;
                config.divisor = divisor;
                config.hook = hook;
                config.findUnused = unused;
                on_trained(4, config, [&](TrainedRank& rank) {
                    // Rank 0 has no input in the first epoch. The last ones to join are ranks 1 and 2.
                    const int inputs[2][4] = {{0, 4, 4, 1}, {2, 3, 1, 2}};
                    for (int epoch = 0; epoch < 2; ++epoch) {
                        const int last = epoch == 0 ? 2 : 1;
                        for (int iteration = 0; iteration < inputs[epoch][rank.rank()]; ++iteration) {
                            // Accumulation and Join compose.
                            rank.begin(iteration % 2 ? weftTrainSynchronize : weftTrainAccumulate);
                            rank.backward(iteration, iteration % 2 == 1);
                            rank.finish();
                            if (iteration % 2 == 0) continue;
                            int active = 0;
                            for (const int of_rank : inputs[epoch]) active += of_rank > iteration;
                            const auto expected = [&](int p, size_t i) {
                                double all = 0;
                                for (int r = 0; r < 4; ++r)
                                    if (inputs[epoch][r] > iteration)
                                        all += gradient_element(r, iteration - 1, p, i) +
                                               gradient_element(r, iteration, p, i);
                                return all / (divisor == weftTrainDivideByActive ? active : 4);
                            };
                            rank.expect(expected, "average with joined ranks", 4, lossy(hook));
                        }
                        rank.buffer() = 300 + rank.rank();
                        rank.check(weftTrainDdpJoin(rank.ddp(), nullptr));
                        if (rank.buffer() != 300 + last)
                            rank.complain("the last buffers come from " + std::to_string(rank.buffer()));
                    }
                });
            }
}

TEST_CASE("with a static graph, a rank that joined the first epoch trains right in the second one") {
    for (const std::string& wrong : on_threads(2, nullptr, [&](weftComm_t comm, int own) {
             weftTrainDdpConfig_t config = WEFT_TRAIN_DDP_CONFIG_INITIALIZER;
             config.staticGraph = config.join = 1;
             TrainedRank rank(comm, config, {{weftFloat32, 5}, {weftFloat32, 7}});
             // Rank 1 alone uses parameter 1, which has memory of its own on every rank.
             const auto iteration = [&](int number) {
                 rank.begin();
                 for (int p = own; p >= 0; --p) {
                     rank.compute(p, number);
                     rank.ready(p);
                 }
                 rank.finish();
             };
             if (own == 0) iteration(0);
             rank.check(weftTrainDdpJoin(rank.ddp(), nullptr));
             for (int number = 1; number < 4; ++number) {
                 iteration(number);
                 rank.expect(
                     [&](int p, size_t i) {
                         return (p == 0 ? gradient_element(0, number, p, i) : 0) / 2 +
                                gradient_element(1, number, p, i) / 2;
                     },
                     "the second epoch");
             }
             rank.check(weftTrainDdpJoin(rank.ddp(), nullptr));
             return rank.wrong();
         }))
        CHECK(wrong == "");
}
