// steady_test.cpp: calls on host memory that were made before ask nothing of the allocator: every collective, by every
// algorithm of one host, and messages, of ranks that are threads.
#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <unistd.h>
#include <weft/weft.h>

#include <functional>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "tests/catch.hpp"
#include "tests/comm/on_threads.hpp"

namespace weft::internal::test {
namespace {

// Requests of this thread to the allocator while it counts.
thread_local bool counting = false;
thread_local long asked = 0;

constexpr int ranks = 3, warm = 4, rounds = 50;
constexpr size_t most = 40'000;

struct Buffers {
    std::vector<float> from = std::vector<float>(most * ranks, 1), to = std::vector<float>(most * ranks);
};

// Repeats each call by itself and returns the first that asked the allocator for memory. `count`: elements of a part.
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

// Each way to ask the allocator for memory. The pointer is volatile, so that no compiler leaves the request out.
TEST_CASE("every way to ask the allocator is counted", "[steady]") {
    void* volatile place = nullptr;
    const auto seen = [&](void* got) {
        place = got;
        return got;
    };
    const auto give_back = [&](void* got) { free(seen(got)); };
    const std::pair<const char*, std::function<void()>> ways[] = {
        {"malloc", [&] { give_back(malloc(100)); }},
        {"calloc", [&] { give_back(calloc(10, 10)); }},
        {"realloc", [&] { give_back(realloc(nullptr, 100)); }},
        {"reallocarray", [&] { give_back(reallocarray(nullptr, 10, 10)); }},
        {"aligned_alloc", [&] { give_back(aligned_alloc(64, 128)); }},
        {"memalign", [&] { give_back(memalign(64, 128)); }},
        {"valloc", [&] { give_back(valloc(100)); }},
        {"posix_memalign",
         [&] {
             void* at = nullptr;
             if (posix_memalign(&at, 64, 128) == 0) give_back(at);
         }},
        {"new", [&] { ::operator delete(seen(::operator new(100))); }},
        {"new[]", [&] { ::operator delete[](seen(::operator new[](100))); }},
        {"aligned new",
         [&] { ::operator delete(seen(::operator new(128, std::align_val_t(64))), std::align_val_t(64)); }},
        {"a vector", [&] { place = std::vector<int>(100).data(); }},
    };
    for (const auto& [name, ask] : ways) {
        CAPTURE(name);
        ask();  // what the C library makes once
        asked = 0;
        counting = true;
        ask();
        counting = false;
        CHECK(std::exchange(asked, 0) > 0);
    }
    counting = true;
    place = nullptr;
    counting = false;
    CHECK(asked == 0);
}

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

// In the place of the C library's, which everything else in this process asks, too. operator new asks malloc or
// aligned_alloc.
extern "C" {
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* place, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);

void* malloc(size_t bytes) {
    weft::internal::test::asked += weft::internal::test::counting;
    return __libc_malloc(bytes);
}
void* calloc(size_t count, size_t bytes) {
    weft::internal::test::asked += weft::internal::test::counting;
    return __libc_calloc(count, bytes);
}
void* realloc(void* place, size_t bytes) {
    weft::internal::test::asked += weft::internal::test::counting;
    return __libc_realloc(place, bytes);
}
void* reallocarray(void* place, size_t count, size_t bytes) {
    size_t all = 0;
    if (__builtin_mul_overflow(count, bytes, &all)) {
        errno = ENOMEM;
        return nullptr;
    }
    return realloc(place, all);
}
void* memalign(size_t alignment, size_t bytes) {
    weft::internal::test::asked += weft::internal::test::counting;
    return __libc_memalign(alignment, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) { return memalign(alignment, bytes); }
void* valloc(size_t bytes) { return memalign(size_t(sysconf(_SC_PAGESIZE)), bytes); }
int posix_memalign(void** place, size_t alignment, size_t bytes) {
    if (alignment % sizeof(void*) != 0 || (alignment & (alignment - 1)) != 0 || alignment == 0) return EINVAL;
    void* const got = memalign(alignment, bytes);
    if (!got) return ENOMEM;
    *place = got;
    return 0;
}
}
