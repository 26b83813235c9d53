#include "src/gpu/engine/gpu_engine.hpp"

#include <unistd.h>

#include "src/base/clock.hpp"
#include "src/base/log.hpp"
#include "src/gpu/engine/gpu_engine_state.hpp"

namespace weft::internal {

using cuda::BufferRegistry;
using cuda::ContextScope;
using cuda::Domain;
using cuda::RelaxedCapture;

namespace {

// The service thread looks while the rank's thread may be in the driver: deaths are reported within a second.
constexpr int64_t device_look_apart_us = 50'000;
// The wait for the call of a rank of another host, which leaders send twice a second.
constexpr int64_t call_patience_us = 2'000'000;

}  // namespace

GpuEngine::GpuEngine(std::unique_ptr<State> state) : state_(std::move(state)) {}

GpuEngine::~GpuEngine() {
    State& s = *state_;
    const RelaxedCapture relaxed(*s.driver);  // another thread may capture meanwhile
    // Peers may die while we wait for our kernels, so peers are watched until the kernels have ended.
    if (s.domain) s.domain->launches().finish();
    if (s.network) (void)s.network->drain(s.timeout_ns > 0 ? now_us() + int64_t(s.timeout_ns / 1000) : 0);
    if (s.service) s.service->run([&] { s.service->cancel(s.timer); });
    s.network.reset();
    s.buffer_registry.reset();  // before we report that we have unmapped the others' memory
    if (s.domain)
        Domain::retire(std::move(s.domain));
    else if (s.group)
        s.group->row(s.rank).device_left.store(1, std::memory_order_release);
    if (s.group && !s.group->one_host()) s.group->ring();  // the leader may be waiting for it
    state_.reset();
}

DeviceFacts GpuEngine::facts() const { return state_->facts; }

bool GpuEngine::copies() const { return state_->copies; }

void GpuEngine::finish() const {
    if (state_->domain) state_->domain->launches().finish();
}

Result<BufferPlacement> GpuEngine::placement_of(const DeviceArgument& send, const DeviceArgument& receive,
                                                const void* stream) {
    const State& s = *state_;
    return s.buffers->placement_of(send, receive, stream != nullptr, s.unsupported_reason);
}

Result<uint64_t> GpuEngine::room(const DeviceArgument& argument) {
    return state_->buffers->room(argument, state_->unsupported_reason);
}

void GpuEngine::look(bool may_wait) const {
    if (state_->domain && state_->domain->failure() != cuda::KernelFailure::none) [[unlikely]]
        state_->look(false, may_wait);
}

void GpuEngine::State::look_again() {
    timer = service->after(device_look_apart_us, [this] {
        look(true, false);
        look_again();
    });
}

// Waits for the call of a rank of another host. False: it may still arrive. The service thread may not wait, because it
// would receive it.
bool GpuEngine::State::await_health(const DeviceDiagnosis& observer, bool may_wait) {
    if (!network || domain->reports().message_report.valid || observer.informed(domain->reports().report)) return true;
    int64_t since_us = 0;
    if (const int64_t now = now_us(); failed_us.compare_exchange_strong(since_us, now)) since_us = now;
    for (;; usleep(1000)) {
        if (group->aborted() || now_us() - since_us > call_patience_us || observer.informed(domain->reports().report))
            return true;
        network->health().ask();
        if (!may_wait) return false;
    }
}

void GpuEngine::State::look(bool at_others, bool may_wait) try {
    if (at_others && buffer_registry) buffer_registry->look();
    if (group->aborted()) return;
    const DeviceDiagnosis observer{*group, rank, known, timeout_ns};
    Status found;
    if (domain->failure() != cuda::KernelFailure::none) {
        if (!await_health(observer, may_wait)) return;
        found = observer.explain(domain->reports().report, domain->reports().message_report,
                                 domain->reports().signal_report);
    } else if (at_others) {
        // A rank of another host may have sent all its data, which is still on its way.
        const int64_t stalled_us = network ? network->stalled_us() : 0;
        found = observer.check_peers([&](int other, bool died) {
            if (group->local(other)) return domain->launches().captured() || domain->launches().working();
            return stalled_us > 0 && (!died || stalled_us >= RemoteHealth::settled_us);
        });
        // Its last data may have arrived meanwhile, and we may wait for another rank, whose data is on its way.
        const bool accusing = !found;
        if (accusing && !accused) found = ok();
        accused = accusing;
        if (!accusing && network) found = network->trouble();
        if (!accusing && found) found = departed_peers.look(*group, rank, domain->reports().block_waits, stalled_us);
    }
    if (found || !group->raise(found, rank)) return;
    WEFT_LOG_RANK(rank, warn, coll, "{}", found.text());
} catch (const std::bad_alloc&) {
    group->raise(error::memory_exhausted, rank, "a rank ran out of memory while it looked after its device",
                 {.rank = rank});
}

std::string GpuEngine::explain(const Operation& operation, uint8_t preference) const {
    const State& s = *state_;
    if (!s.unsupported_reason.empty())
        return fmt::format("\nin device memory: not served, for {}", s.unsupported_reason);
    if (s.copies) return "\nin device memory: the same, on copies in the host's memory";
    const auto plan = plan_on_device(operation, s.layout_for(preference));
    if (!plan) return fmt::format("\nin device memory: {}", plan.status().sentence());
    return fmt::format("\nin device memory: {}{}{}, by {} that Weft has not measured on a GPU", plan->text(),
                       s.domain->fallback_text(),
                       !plan->staged() ? ""
                       : s.exports_buffers && !operation.scales()
                           ? ", in place where all buffers are of cudaMalloc or weftMemAlloc and, if other "
                             "processes have ranks, "
                             "registered, else staged"
                           : ", staged",
                       plan->steps >= 0 ? "predicted time, with costs" : "size, with thresholds");
}

std::optional<int> GpuEngine::register_buffer(const void* address, size_t bytes) {
    State& s = *state_;
    if (!s.context()) return {};
    const ContextScope scope(*s.context());
    const RelaxedCapture relaxed(*s.driver);
    const auto facts = describe_pointer(*s.driver, address);
    if (facts && !facts->on_device()) return {};
    if (!facts) WEFT_LOG_RANK(s.rank, info, mem, "cannot register {}: {}", address, facts.status().sentence());
    if (!facts) return no_entry;
    if (!s.exports_buffers || bytes == 0) return no_entry;
    const auto entry = s.buffer_registry->add(address, bytes, BufferRegistry::RegistrationUse::buffer);
    if (entry) return *entry;
    WEFT_LOG_RANK(s.rank, info, mem, "{} bytes of device memory at {} are not mapped by others: {}", bytes, address,
                  entry.status().sentence());
    return no_entry;
}

Status GpuEngine::deregister_buffer(int entry) {
    // Our kernels that have ended have synchronised with their peers after the last access.
    state_->domain->launches().finish();
    return state_->buffer_registry->remove(entry, BufferRegistry::RegistrationUse::buffer);
}

uint64_t GpuEngine::device_bytes() const { return state_->domain ? state_->domain->memory().device_bytes() : 0; }

}  // namespace weft::internal
