#include "src/gpu/domain/copy_signals.hpp"

#include <algorithm>
#include <atomic>

#include "src/base/clock.hpp"

namespace weft::internal::cuda {

namespace {

// Either half of a StreamWord.
constexpr uint64_t arrived_or_released = 1 | uint64_t(1) << 32;
static_assert(sizeof(StreamWord) == sizeof(uint64_t) && offsetof(StreamWord, arrived) == 0);
static_assert(offsetof(GpuRow, done) == offsetof(GpuRow, ready) + sizeof(GpuRow::ready));

// By default the write follows a fence, so other devices see the stream's earlier work first.
CUstreamBatchMemOpParams write_of(CUdeviceptr address, uint32_t value) {
    CUstreamBatchMemOpParams operation{};
    operation.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    operation.writeValue.address = address;
    operation.writeValue.value = value;
    operation.writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;
    return operation;
}

CUstreamBatchMemOpParams wait_for(CUdeviceptr address) {
    CUstreamBatchMemOpParams operation{};
    operation.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_64;
    operation.waitValue.address = address;
    operation.waitValue.value64 = arrived_or_released;
    operation.waitValue.flags = CU_STREAM_WAIT_VALUE_AND;
    return operation;
}

}  // namespace

Result<std::unique_ptr<CopySignals>> CopySignals::make(std::shared_ptr<Segment> group, int rank,
                                                       const DomainMemory& memory) {
    const Context& context = memory.kernels().context();
    const Driver& driver = context.driver();
    int available = 0;
    if (driver.StreamBatchMemOp == nullptr ||
        driver.DeviceGetAttribute(&available, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, context.device()) !=
            CUDA_SUCCESS ||
        available == 0)
        return fail(error::gpu_not_served, "the driver or device {} has no 64-bit stream memory operations",
                    context.device());
    const ContextScope scope(context);
    std::unique_ptr<CopySignals> signals(new CopySignals(std::move(group), rank, memory));
    WEFT_TRY(signals->find_addresses());
    signals->set_clock(now_us());  // a stream may wait before the service thread looks
    return signals;
}

Status CopySignals::find_addresses() {
    for (int rank = 0; rank < group_->ranks(); ++rank) {
        auto address = memory_.shared_abort_flag()->address_of(&group_->row(rank).gpu.ready);
        if (!address) return address.take_status();
        rows_.push_back(*address);
    }
    return ok();
}

// Through device memory: a copy from host memory to host memory would block the caller behind the stream.
Status CopySignals::copy_clock(CUstream stream) {
    const Driver& driver = memory_.kernels().driver();
    const CUdeviceptr on_device = memory_.own().address() + memory_.layout().clock;
    WEFT_TRY(copy_async(driver, on_device, report_address(offsetof(CopyReport, clock_us)), sizeof(uint64_t), stream));
    return copy_async(driver, report_address(offsetof(CopyReport, began_us)), on_device, sizeof(uint64_t), stream);
}

Status CopySignals::enqueue(CUstream stream, KernelWait stage, const Call& call) {
    const Driver& driver = memory_.kernels().driver();
    const int ranks = group_->ranks();
    const auto each_peer = [&](auto&& operation) {
        for (int distance = 1; distance < ranks; ++distance)
            operations_.push_back(operation((rank_ + distance) % ranks));
    };
    const auto report = [&](size_t offset, uint32_t value) {
        operations_.push_back(write_of(report_address(offset), value));
    };
    WEFT_TRY(copy_clock(stream));
    operations_.clear();
    report(offsetof(CopyReport, fingerprint), call.fingerprint);
    report(offsetof(CopyReport, timeout_ms), uint32_t(std::min<uint64_t>(call.timeout_ns / 1'000'000, UINT32_MAX)));
    report(offsetof(CopyReport, stage), uint32_t(stage));
    each_peer([&](int peer) { return write_of(word(peer, stage, rank_), 1); });
    each_peer([&](int peer) { return wait_for(word(rank_, stage, peer)); });
    report(offsetof(CopyReport, stage), CopyReport::copying);  // before the words are 0: see overdue()
    each_peer([&](int peer) { return write_of(word(rank_, stage, peer), 0); });
    if (stage == KernelWait::done) report(offsetof(CopyReport, stage), uint32_t(KernelWait::nothing));
    return driver.check(driver.StreamBatchMemOp(stream, unsigned(operations_.size()), operations_.data(), 0),
                        "enqueue {} stream memory operations", operations_.size());
}

void CopySignals::set_clock(int64_t now_us) {
    std::atomic_ref(report().clock_us).store(uint64_t(now_us), std::memory_order_relaxed);
}

std::optional<FailureReport> CopySignals::overdue(int64_t now_us, int64_t precision_us) const {
    CopyReport& it = report();
    // The stream copies the clock before it writes that it waits.
    const auto stage_now = [&] { return std::atomic_ref(it.stage).load(std::memory_order_acquire); };
    const auto began_now = [&] { return int64_t(std::atomic_ref(it.began_us).load(std::memory_order_acquire)); };
    const auto stage = KernelWait(stage_now());
    if (stage != KernelWait::ready && stage != KernelWait::done) return {};
    const int64_t began_us = began_now();
    const uint64_t timeout_ms = std::atomic_ref(it.timeout_ms).load(std::memory_order_relaxed);
    if (timeout_ms == 0 || now_us - began_us <= int64_t(timeout_ms) * 1000 + precision_us) return {};
    const GpuRow& own = group_->row(rank_).gpu;
    for (int peer = 0; peer < group_->ranks(); ++peer) {
        const StreamWord& word = (stage == KernelWait::ready ? own.ready : own.done)[peer];
        if (peer == rank_ || word.arrived.load(std::memory_order_acquire) != 0) continue;
        // The word is also 0 if the wait has just ended: then the stream has left the stage before.
        if (began_now() != began_us || KernelWait(stage_now()) != stage) return {};
        FailureReport late{};
        late.failure = KernelFailure::timeout;
        late.waiting = stage;
        late.rank = rank_;
        late.peer = peer;
        late.fingerprint = std::atomic_ref(it.fingerprint).load(std::memory_order_relaxed);
        late.timeout_ns = timeout_ms * 1'000'000;
        return late;
    }
    return {};
}

bool CopySignals::idle() const {
    return KernelWait(std::atomic_ref(report().stage).load(std::memory_order_acquire)) == KernelWait::nothing;
}

void CopySignals::release() {
    GpuRow& own = group_->row(rank_).gpu;
    for (auto* words : {&own.ready, &own.done})
        for (StreamWord& word : *words) word.released.store(1, std::memory_order_release);
}

}  // namespace weft::internal::cuda
