// steady_test.cpp: calls on host memory that were made before ask nothing of the allocator: every collective, by every
// algorithm of one host, and messages, of ranks that are threads.
#include <weft/weft.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/catch.hpp"
#include "tests/comm/on_threads.hpp"

namespace weft::internal::test {
namespace {

// What this thread asks of the allocator while it counts.
thread_local bool counting = false;
thread_local long asked = 0;

constexpr int ranks = 3, warm = 4, rounds = 50;
constexpr size_t most = 40'000;

struct Buffers {
    std::vector<float> from = std::vector<float>(most * ranks, 1), to = std::vector<float>(most * ranks);
};

// Each call by itself, often: what was asked for, if anything, and by which. `count`: elements of a part.
std::string check_calls(weftComm_t comm, int rank, size_t count, Buffers& buffers) {
    float *const from = buffers.from.data(), *const to = buffers.to.data();
    const int next = (rank + 1) % ranks, last = (rank + ranks - 1) % ranks;
    const std::pair<const char*, std::function<weftResult_t()>> calls[] = {
        {"all-reduce", [&] { return weftAllReduce(from, to, count, weftFloat32, weftSum, comm, nullptr); }},
        {"all-reduce in place", [&] { return weftAllReduce(to, to, count, weftFloat32, weftMax, comm, nullptr); }},
        {"reduce-scatter", [&] { return weftReduceScatter(from, to, count, weftFloat32, weftSum, comm, nullptr); }},
        {"all-gather", [&] { return weftAllGather(from, to, count, weftFloat32, comm, nullptr); }},
        {"broadcast", [&] { return weftBroadcast(from, to, count, weftFloat32, 1, comm, nullptr); }},
        {"reduce", [&] { return weftReduce(from, to, count, weftFloat32, weftAvg, 1, comm, nullptr); }},
        {"all-to-all", [&] { return weftAlltoAll(from, to, count, weftFloat32, comm, nullptr); }},
        {"gather", [&] { return weftGather(from, to, count, weftFloat32, 2, comm, nullptr); }},
        {"scatter", [&] { return weftScatter(from, to, count, weftFloat32, 2, comm, nullptr); }},
        {"barrier", [&] { return weftBarrier(comm, nullptr); }},
        {"send and receive",
         [&] { return weftSendRecv(from, count, next, to, count, last, weftFloat32, comm, nullptr); }},
    };
    for (const auto& [name, call] : calls) {
        for (int round = 0; round < warm + rounds; ++round) {
            counting = round >= warm;
            const weftResult_t code = call();
            counting = false;
            if (code != weftSuccess) return std::string(name) + ": " + weftGetLastError(comm);
        }
        if (asked > 0) return std::string(name) + ": " + std::to_string(std::exchange(asked, 0)) + " allocations";
    }
    return "";
}

}  // namespace

TEST_CASE("a call on host memory that was made before allocates nothing", "[steady]") {
    const char* const algo =
        GENERATE(as<const char*>(), "", "^one_shot,^two_shot", "ring", "recursive_doubling", "halving_doubling", "pat",
                 "all_pairs", "double_binary_tree", "binomial_tree", "linear", "bruck", "scatter_all_gather",
                 "one_shot", "two_shot", "rank_order", "linear_ahead", "dissemination");
    for (const size_t count : {size_t(1), size_t(300), most}) {
        CAPTURE(algo, count);
        for (const std::string& wrong : on_threads(ranks, algo, [&](weftComm_t comm, int rank) {
                 Buffers buffers;
                 return check_calls(comm, rank, count, buffers);
             }))
            CHECK(wrong == "");
    }
}

}  // namespace weft::internal::test

// Of the C library's, which everything else in this process asks, too.
extern "C" {
void* __libc_malloc(size_t bytes);
void* malloc(size_t bytes) {
    weft::internal::test::asked += weft::internal::test::counting;
    return __libc_malloc(bytes);
}
}
