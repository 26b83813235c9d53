#include "src/train/bucket_hooks.hpp"

#include "src/base/arithmetic.hpp"

namespace weft::internal::train {

namespace {

template <weftDataType_t to, weftDataType_t from>
void convert(void* results, const void* numbers, size_t count) {
    using To = Arithmetic<to>;
    using From = Arithmetic<from>;
    auto* const result = static_cast<typename To::Element*>(results);
    const auto* const number = static_cast<const typename From::Element*>(numbers);
    for (size_t i = 0; i < count; ++i) result[i] = To::round(typename To::Accumulator(From::widen(number[i])));
}

template <weftDataType_t small, weftDataType_t large>
Status average_small(const weftTrainBucket_t& bucket) {
    void* scratch = nullptr;
    const size_t bytes = bucket.count * sizeof(typename Arithmetic<small>::Element);
    WEFT_TRY(called(weftTrainBucketScratch(&bucket, bytes, &scratch)));
    convert<small, large>(scratch, bucket.data, bucket.count);
    weftTrainBucket_t sent = bucket;
    sent.data = scratch;
    sent.datatype = small;
    WEFT_TRY(average(sent));
    convert<large, small>(bucket.data, scratch, bucket.count);
    return ok();
}

template <weftDataType_t small>
Status average_in(const weftTrainBucket_t& bucket) {
    if (bucket.datatype == weftFloat32) return average_small<small, weftFloat32>(bucket);
    if (bucket.datatype == weftFloat64) return average_small<small, weftFloat64>(bucket);
    return average(bucket);
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
    return type == weftFloat16 ? average_in<weftFloat16>(bucket) : average_in<weftBfloat16>(bucket);
}

}  // namespace weft::internal::train
