// Hooks of buckets: a caller's own, built-in ones that it calls, and their memory.
#include <weft/train.h>

#include <cstring>
#include <map>
#include <set>
#include <vector>

#include "tests/comm/on_threads.hpp"
#include "tests/train/trained_rank.hpp"

using namespace weft::internal;
using namespace weft::internal::test;

namespace {

// The facts that the hooks of one rank have seen.
struct Seen {
    std::string wrong;
    std::map<uint64_t, std::set<int>> parameters;  // by layout
    std::vector<int> indices;
    int calls = 0;
};

void look(const weftTrainBucket_t& bucket, Seen& seen) {
    const auto model = model_of_all_types();
    size_t count = 0;
    for (size_t i = 0; i < bucket.parameterCount; ++i) {
        const auto [type, elements] = model[size_t(bucket.parameters[i])];
        if (type != bucket.datatype || bucket.offsets[i] != count) seen.wrong = "a parameter's place";
        count += elements;
        if (!seen.parameters[bucket.layout].insert(bucket.parameters[i]).second) seen.wrong = "a parameter twice";
    }
    if (count != bucket.count || bucket.size != sizeof bucket || bucket.stream) seen.wrong = "the bucket's facts";
    seen.indices.push_back(bucket.index);
}

// Sums in place of averaging, and counts its calls in the bucket's scratch memory.
weftResult_t sum_hook(const weftTrainBucket_t* bucket, void* context) {
    Seen& seen = *static_cast<Seen*>(context);
    look(*bucket, seen);
    void *scratch = nullptr, *again = nullptr;
    if (weftTrainBucketScratch(bucket, 100, &scratch) != weftSuccess ||
        weftTrainBucketScratch(bucket, 50, &again) != weftSuccess || again != scratch)
        seen.wrong = "scratch memory";
    seen.calls = ++*static_cast<int*>(scratch);
    return weftAllReduce(bucket->data, bucket->data, bucket->count, bucket->datatype, weftSum, bucket->comm,
                         bucket->stream);
}

// Doubles the gradients, then averages a copy of the bucket's struct.
weftResult_t doubling_hook(const weftTrainBucket_t* bucket, void*) {
    for (size_t i = 0; i < bucket->count; ++i)
        set_number(bucket->data, bucket->datatype, i, 2 * number_at(bucket->data, bucket->datatype, i));
    weftTrainBucket_t copy = *bucket;
    return weftTrainHookAverage(&copy, nullptr);
}

// Keeps a count in scratch memory that grows, and averages as bfloat16, which has memory of its own.
weftResult_t keeping_hook(const weftTrainBucket_t* bucket, void* context) {
    Seen& seen = *static_cast<Seen*>(context);
    void *first = nullptr, *larger = nullptr;
    if (weftTrainBucketScratch(bucket, 8, &first) != weftSuccess) seen.wrong = "scratch memory";
    int* const kept = static_cast<int*>(first);
    if (++*kept == 1) kept[1] = 77;
    weftTrainBucket_t copy = *bucket;
    copy.index = 1000;
    copy.comm = nullptr;
    copy.stream = weftStream_t(&copy);
    const weftResult_t result = weftTrainHookBfloat16(&copy, nullptr);
    if (*kept != ++seen.calls || kept[1] != 77) seen.wrong = "a built-in hook wrote to the scratch memory";
    if (weftTrainBucketScratch(&copy, size_t(seen.calls) << 20, &larger) != weftSuccess) seen.wrong = "larger memory";
    kept[1] = 78;  // the old memory lives until the hook returns
    if (memcmp(larger, first, 4) != 0) seen.wrong = "the contents of larger memory";
    return result;
}

// Calls functions of its own object, which would wait for themselves.
struct Own {
    weftTrainDdp_t ddp = nullptr;
    std::string wrong;
};
weftResult_t calling_hook(const weftTrainBucket_t* bucket, void* context) {
    Own& own = *static_cast<Own*>(context);
    void* memory = nullptr;
    const weftResult_t results[] = {weftTrainDdpGetGradient(own.ddp, 0, &memory), weftTrainDdpFinish(own.ddp, nullptr),
                                    weftTrainDdpDestroy(own.ddp)};
    for (const weftResult_t result : results)
        if (result != weftInvalidUsage) own.wrong = "a call in the hook";
    weftErrorInfo_t info = WEFT_ERROR_INFO_INITIALIZER;
    (void)weftGetLastErrorInfo(nullptr, &info);
    if (std::string(info.id) != "usage.in-function") own.wrong = info.id;
    return weftTrainHookAverage(bucket, nullptr);
}

}  // namespace

TEST_CASE("a hook sees every parameter once, in the order of the buckets, and its scratch memory stays") {
    std::vector<Seen> seen(3);
    for (const std::string& wrong : on_threads(3, nullptr, [&](weftComm_t comm, int own) {
             weftTrainDdpConfig_t config = WEFT_TRAIN_DDP_CONFIG_INITIALIZER;
             config.bucketCapBytes = 600;
             config.hook = sum_hook;
             config.hookContext = &seen[size_t(own)];
             TrainedRank rank(comm, config);
             for (int iteration = 0; iteration < 4; ++iteration) {
                 Seen& now = seen[size_t(own)];
                 now.parameters.clear();
                 now.indices.clear();
                 rank.begin();
                 rank.backward(iteration);
                 rank.finish();
                 rank.expect(
                     [&](int p, size_t i) {
                         double sum = 0;
                         for (int r = 0; r < 3; ++r) sum += gradient_element(r, iteration, p, i);
                         return sum;
                     },
                     "sum");
                 if (now.parameters.size() != 1 || !now.parameters.count(iteration == 0 ? 0 : 1))
                     rank.complain("layouts");
                 if (now.parameters.begin()->second.size() != 10) rank.complain("parameters");
                 for (size_t i = 0; i < now.indices.size(); ++i)
                     if (now.indices[i] != int(i)) rank.complain("the order of buckets");
                 // The rebuild gave new memory.
                 if (now.calls != (iteration == 0 ? 1 : iteration)) rank.complain("contents of the scratch memory");
                 if (!now.wrong.empty()) rank.complain(now.wrong);
             }
             return rank.wrong();
         }))
        CHECK(wrong == "");
}

TEST_CASE("a hook may change the gradients and call the average as its last step") {
    for (const std::string& wrong : on_threads(2, nullptr, [&](weftComm_t comm, int) {
             weftTrainDdpConfig_t config = WEFT_TRAIN_DDP_CONFIG_INITIALIZER;
             config.hook = doubling_hook;
             TrainedRank rank(comm, config);
             for (int iteration = 0; iteration < 2; ++iteration) {
                 rank.begin();
                 rank.backward(iteration);
                 rank.finish();
                 rank.expect(
                     [&](int p, size_t i) {
                         return gradient_element(0, iteration, p, i) + gradient_element(1, iteration, p, i);
                     },
                     "doubled average");
             }
             return rank.wrong();
         }))
        CHECK(wrong == "");
}

TEST_CASE("scratch memory is the caller's alone, and grows with its contents") {
    for (const std::string& wrong : on_threads(2, nullptr, [&](weftComm_t comm, int) {
             Seen seen;
             weftTrainDdpConfig_t config = WEFT_TRAIN_DDP_CONFIG_INITIALIZER;
             config.hook = keeping_hook;
             config.hookContext = &seen;
             TrainedRank rank(comm, config, {{weftFloat32, 1000}});
             for (int iteration = 0; iteration < 4; ++iteration) {
                 rank.begin();
                 rank.backward(iteration);
                 rank.finish();
                 rank.expect(
                     [&](int p, size_t i) {
                         return (gradient_element(0, iteration, p, i) + gradient_element(1, iteration, p, i)) / 2;
                     },
                     "average", 2, 0x1p-7);
             }
             if (!seen.wrong.empty()) rank.complain(seen.wrong);
             return rank.wrong();
         }))
        CHECK(wrong == "");
}

TEST_CASE("a hook that calls its own object gets an error, and the iteration goes on") {
    for (const std::string& wrong : on_threads(2, nullptr, [&](weftComm_t comm, int) {
             Own own;
             weftTrainDdpConfig_t config = WEFT_TRAIN_DDP_CONFIG_INITIALIZER;
             config.bucketCapBytes = 1;
             config.hook = calling_hook;
             config.hookContext = &own;
             TrainedRank rank(comm, config);
             own.ddp = rank.ddp();
             for (int iteration = 0; iteration < 2; ++iteration) {
                 rank.begin();
                 rank.backward(iteration);
                 rank.finish();
             }
             if (!own.wrong.empty()) rank.complain(own.wrong);
             return rank.wrong();
         }))
        CHECK(wrong == "");
}
