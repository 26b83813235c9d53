// bucket_hooks.hpp: the other end of weftTrainBucket_t: the services for a hook, and the built-in hooks.
#pragma once
#include <memory>

#include "src/base/result.hpp"
#include "src/train/gradient_buckets.hpp"
#include "src/train/launch_queue.hpp"
#include "src/train/memory_space.hpp"
#include "src/train/model.hpp"
#include "src/train/peers.hpp"
#include "weft/train.h"

namespace weft::internal::train {

// The `owner` of a bucket, during the hook.
struct HookOwner {
    static constexpr uint64_t living = 0x74666577686f6f6bu;

    uint64_t magic = 0;
    Peers* peers = nullptr;
    GradientBuckets* buckets = nullptr;
    MemorySpace* space = nullptr;
    LaunchQueue* queue = nullptr;  // that calls the hook
    int index = 0;                 // of the bucket
    weftStream_t stream = nullptr;
    const HookOwner* outer = nullptr;  // whose hook called this one
    // Identifies the training object, and ends with it: states of hooks watch it.
    std::shared_ptr<const char> life = std::make_shared<const char>();
};
// Fails if the struct is not of a hook in progress.
Result<HookOwner*> owner_of(const weftTrainBucket_t* bucket);

// Whether this thread is inside a hook of any object, and whether inside one of the owner.
bool in_any_hook();
bool in_hook_of(const HookOwner& owner);

// Calls the hook for one bucket. A failure of the communicator keeps its error; every other one is train.hook. Then
// the communicator is aborted, because other ranks wait for this one.
Status run_hook(const Settings& settings, HookOwner& owner, weftStream_t stream, int index, int divisor);

// A hook may pass a copy of its bucket: only data, count, datatype and divisor count, and the rest is the owner's.
// The average in the bucket's own type.
Status average(const weftTrainBucket_t& bucket);
// The average of float32 and float64 in a float type of 16 bits.
Status average_as(const weftTrainBucket_t& bucket, weftDataType_t type);

}  // namespace weft::internal::train
