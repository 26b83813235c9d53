#include "src/gpu/engine/device_watch.hpp"

#include <unistd.h>

#include "src/base/clock.hpp"
#include "src/base/log.hpp"
#include "src/segment/failure_record.hpp"

namespace weft::internal {

namespace {

// The service thread looks while the rank's thread may be in the driver: deaths are reported within a second.
constexpr int64_t look_apart_us = 50'000;
// The wait for the call of a rank of another host, which leaders send twice a second.
constexpr int64_t call_patience_us = 2'000'000;

}  // namespace

Status DeviceWatch::start() {
    auto service = Service::of_process();
    if (!service) return service.take_status();
    service_ = std::move(*service);
    service_->run([&] { look_again(); });
    return ok();
}

void DeviceWatch::stop() {
    if (service_) service_->run([&] { service_->cancel(timer_); });
}

void DeviceWatch::look_again() {
    timer_ = service_->after(look_apart_us, [this] {
        look(true, false);
        look_again();
    });
}

// Waits for the call of a rank of another host. False: it may still arrive. The service thread may not wait, because it
// would receive it.
bool DeviceWatch::await_health(const DeviceDiagnosis& diagnosis, bool may_wait) {
    const cuda::HostReports& reports = gpu_.domain->reports();
    if (!gpu_.network || reports.message_report.valid || diagnosis.informed(reports.report)) return true;
    int64_t since_us = 0;
    if (const int64_t now = now_us(); failed_us_.compare_exchange_strong(since_us, now)) since_us = now;
    for (;; usleep(1000)) {
        if (gpu_.group->aborted() || now_us() - since_us > call_patience_us || diagnosis.informed(reports.report))
            return true;
        gpu_.network->health().ask();
        if (!may_wait) return false;
    }
}

void DeviceWatch::look(bool at_others, bool may_wait) try {
    Segment& group = *gpu_.group;
    DeviceNetwork* const network = gpu_.network.get();
    if (at_others && gpu_.buffer_registry) gpu_.buffer_registry->look();
    if (cuda::SwitchedBuffers* const switched = gpu_.domain->switched_buffers(); at_others && switched)
        switched->look();
    cuda::CopySignals* const copies = gpu_.domain->copy_signals();
    if (at_others && copies) copies->set_clock(now_us());
    if (copies && group.aborted()) copies->release();
    if (group.aborted()) return;
    const DeviceDiagnosis diagnosis{group, gpu_.rank, gpu_.known, gpu_.timeout_ns};
    const cuda::HostReports& reports = gpu_.domain->reports();
    Status found;
    if (gpu_.domain->failure() != cuda::KernelFailure::none) {
        if (!await_health(diagnosis, may_wait)) return;
        found = diagnosis.explain(reports.report, reports.message_report, reports.signal_report);
    } else if (at_others) {
        // A rank of another host may have sent all its data over the network, which is still on its way.
        const int64_t stalled_us = network ? network->stalled_us() : 0;
        const cuda::LaunchOrder& launches = gpu_.domain->launches();
        // Kernels of all hosts meet by words over NVLink, which do not stay on their way.
        const bool over_hosts = gpu_.layout.support.fabric;
        const int64_t waited_us = over_hosts ? departed_.waited_us(reports.block_waits, now_us()) : stalled_us;
        if (over_hosts && (waited_us > 0 || launches.working() || launches.captured())) network->health().ask();
        found = diagnosis.check_peers([&](int other, bool died) {
            if (group.local(other) || over_hosts) return launches.captured() || launches.working();
            return stalled_us > 0 && (!died || stalled_us >= RemoteHealth::settled_us);
        });
        // Its last data may have arrived meanwhile, and we may wait for another rank, whose data is on its way.
        const bool accusing = !found;
        if (accusing && !accused_) found = ok();
        accused_ = accusing;
        if (!accusing && network) found = network->trouble();
        if (const auto late = found && copies ? copies->overdue(now_us(), look_apart_us) : std::nullopt)
            found = diagnosis.explain(*late, {}, {});
        if (!accusing && found) found = departed_.look(group, gpu_.rank, reports.block_waits, waited_us, over_hosts);
    }
    if (found || !FailureRecord(group).raise(found, gpu_.rank)) return;
    WEFT_LOG_RANK(gpu_.rank, warn, coll, "{}", found.text());
} catch (const std::bad_alloc&) {
    FailureRecord(*gpu_.group)
        .raise(error::memory_exhausted, gpu_.rank, "a rank ran out of memory while it looked after its device",
               {.rank = gpu_.rank});
}

}  // namespace weft::internal
