#include "src/train/bucket_hooks.hpp"

#include "src/base/datatype.hpp"
#include "src/kernels/cpu_kernels.hpp"

namespace weft::internal::train {

namespace {

// Of float64: rounded to fp32 first, as PyTorch does.
void narrow(void* small, weftDataType_t type, const double* large, size_t count) {
    for (size_t i = 0; i < count; ++i) {
        const float number = float(large[i]);
        cpu_kernels().narrow[type](static_cast<uint16_t*>(small) + i, &number, 1);
    }
}
void widen(double* large, weftDataType_t type, const void* small, size_t count) {
    for (size_t i = 0; i < count; ++i) {
        float number = 0;
        cpu_kernels().widen[type](&number, static_cast<const uint16_t*>(small) + i, 1);
        large[i] = double(number);
    }
}

}  // namespace

Result<HookOwner*> owner_of(const weftTrainBucket_t* bucket) {
    if (!bucket) return fail(error::argument_null, "the bucket is NULL: pass the one that the hook got");
    auto* const owner = static_cast<HookOwner*>(bucket->owner);
    if (!owner || owner->magic != HookOwner::living)
        return fail(error::argument_handle, "the bucket is not one of a hook: pass the one that the hook got");
    return owner;
}

Status run_hook(const Settings& settings, HookOwner& owner, weftStream_t stream, int index, int divisor) {
    GradientBuckets& buckets = *owner.buckets;
    Peers& peers = *owner.peers;
    const Bucket& bucket = buckets.layout().buckets[size_t(index)];
    if (bucket.count == 0) return ok();
    weftTrainBucket_t seen = {};
    seen.size = sizeof seen;
    seen.index = index;
    seen.data = buckets.bucket(index);
    seen.count = bucket.count;
    seen.datatype = bucket.type;
    seen.divisor = divisor;
    seen.parameterCount = bucket.parameters.size();
    seen.parameters = bucket.parameters.data();
    seen.offsets = bucket.offsets.data();
    seen.layout = buckets.version();
    seen.comm = peers.comm();
    seen.stream = stream;
    seen.owner = &owner;
    owner.magic = HookOwner::living;
    weftResult_t result = weftInternalError;
    std::string why;
    try {
        result = settings.hook(&seen, settings.hook_context);
    } catch (const std::exception& exception) {
        why = fmt::format("it threw an exception: {}", exception.what());
    } catch (...) {
        why = "it threw an exception";
    }
    owner.magic = 0;
    if (result == weftSuccess) return ok();
    if (peers.aborted())
        return fail(error::train_aborted, "weftTrainDdpAbort ended bucket {} on rank {}", index, peers.rank());
    weftResult_t broken = weftSuccess;
    if (weftCommGetAsyncError(peers.comm(), &broken) == weftSuccess && broken != weftSuccess)
        return called(broken, peers.comm());
    if (why.empty()) why = fmt::format("it returned {}, {}", int(result), weftGetErrorString(result));
    peers.abort();
    return fail(error::train_hook, "the hook failed for bucket {} on rank {}: {}", index, peers.rank(), why)
        .about({.rank = peers.rank()});
}

Status average(const weftTrainBucket_t& bucket) {
    auto owner = owner_of(&bucket);
    if (!owner) return owner.take_status();
    auto op = (*owner)->peers->average(bucket.datatype, bucket.divisor);
    if (!op) return op.take_status();
    return called(
        weftAllReduce(bucket.data, bucket.data, bucket.count, bucket.datatype, *op, bucket.comm, bucket.stream));
}

Status average_as(const weftTrainBucket_t& bucket, weftDataType_t type) {
    if (bucket.datatype != weftFloat32 && bucket.datatype != weftFloat64) return average(bucket);
    const bool is_double = bucket.datatype == weftFloat64;
    void* scratch = nullptr;
    WEFT_TRY(called(weftTrainBucketScratch(&bucket, bucket.count * size_of(type), &scratch)));
    if (is_double)
        narrow(scratch, type, static_cast<const double*>(bucket.data), bucket.count);
    else
        cpu_kernels().narrow[type](scratch, bucket.data, bucket.count);
    weftTrainBucket_t sent = bucket;
    sent.data = scratch;
    sent.datatype = type;
    WEFT_TRY(average(sent));
    if (is_double)
        widen(static_cast<double*>(bucket.data), type, scratch, bucket.count);
    else
        cpu_kernels().widen[type](bucket.data, scratch, bucket.count);
    return ok();
}

}  // namespace weft::internal::train
