#include "src/train/hooks/bucket_hooks.hpp"

#include <cmath>

#include "src/base/datatype.hpp"
#include "src/train/sharding/gradient_division.hpp"

namespace weft::internal::train {

namespace {

thread_local const HookOwner* innermost = nullptr;  // whose hook runs in this thread

// Of a thread inside a hook. Hooks nest: one may finish an iteration of another object.
class InHook {
  public:
    explicit InHook(HookOwner& owner) : owner_(owner) {
        owner_.outer = innermost;
        owner_.magic = HookOwner::living;
        innermost = &owner_;
    }
    InHook(const InHook&) = delete;
    ~InHook() {
        innermost = owner_.outer;
        owner_.magic = 0;
    }

  private:
    HookOwner& owner_;
};

}  // namespace

Result<HookOwner*> owner_of(const weftTrainBucket_t* bucket) {
    if (!bucket) return fail(error::argument_null, "the bucket is NULL: pass the one that the hook got");
    auto* const owner = static_cast<HookOwner*>(bucket->owner);
    if (!owner || owner->magic != HookOwner::living)
        return fail(error::argument_handle, "the bucket is not one of a hook: pass the one that the hook got");
    return owner;
}

bool in_any_hook() { return innermost; }

bool in_hook_of(const HookOwner& owner) {
    for (const HookOwner* each = innermost; each; each = each->outer)
        if (each == &owner) return true;
    return false;
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
    owner.index = index;
    owner.stream = stream;
    weftResult_t result = weftInternalError;
    std::string why;
    try {
        const InHook inside(owner);
        result = settings.hook(&seen, settings.hook_context);
    } catch (const std::exception& exception) {
        why = fmt::format("it threw an exception: {}", exception.what());
    } catch (...) {
        why = "it threw an exception";
    }
    if (peers.aborted())
        return fail(error::train_aborted, "weftTrainDdpAbort ended bucket {} on rank {}", index, peers.rank());
    // Also of a hook that ignores the errors of its calls.
    WEFT_TRY(peers.state());
    if (result == weftSuccess) return buckets.end_hook();
    if (why.empty()) why = fmt::format("it returned {}, {}", int(result), weftGetErrorString(result));
    Status failed = fail(error::train_hook, "the hook failed for bucket {} on rank {}: {}", index, peers.rank(), why)
                        .about({.rank = peers.rank()});
    owner.queue->fail(failed);  // a thread that sees the abort finds the reason
    peers.abort();
    return failed;
}

namespace {

// A reduction multiplies by 1 / divisor in the gradients' type. In 16 bits the rounding of that factor would change all
// gradients alike, by up to 0.2 %.
GradientDivision division_of(const weftTrainBucket_t& bucket, int ranks) {
    int exponent = 0;
    const bool exact = size_of(bucket.datatype) > 2 || std::frexp(bucket.divisor, &exponent) == 0.5;
    if (exact || bucket.divisor == ranks) return {GradientDivision::Reduction::average, double(bucket.divisor), 1};
    return two_steps(bucket.divisor);
}

}  // namespace

Status average(const weftTrainBucket_t& bucket) {
    auto owner = owner_of(&bucket);
    if (!owner) return owner.take_status();
    const HookOwner& own = **owner;
    const GradientDivision division = division_of(bucket, own.peers->ranks());
    auto op = own.peers->average(bucket.datatype, division.before);
    if (!op) return op.take_status();
    WEFT_TRY(called(
        weftAllReduce(bucket.data, bucket.data, bucket.count, bucket.datatype, *op, own.peers->comm(), own.stream)));
    if (division.after == 1) return ok();
    return own.space->scale(bucket.data, bucket.count, bucket.datatype, 1, division.after);
}

Status average_as(const weftTrainBucket_t& bucket, weftDataType_t type) {
    if (bucket.datatype != weftFloat32 && bucket.datatype != weftFloat64) return average(bucket);
    auto owner = owner_of(&bucket);
    if (!owner) return owner.take_status();
    HookOwner& own = **owner;
    auto memory = own.buckets->own_scratch(own.index, bucket.count * size_of(type));
    if (!memory) return memory.take_status();
    WEFT_TRY(own.space->convert(*memory, type, bucket.data, bucket.datatype, bucket.count));
    weftTrainBucket_t sent = bucket;
    sent.data = *memory;
    sent.datatype = type;
    WEFT_TRY(average(sent));
    WEFT_TRY(own.space->convert(bucket.data, bucket.datatype, *memory, type, bucket.count));
    return ok();
}

}  // namespace weft::internal::train
