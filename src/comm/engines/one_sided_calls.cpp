#include "src/comm/engines/one_sided_calls.hpp"

namespace weft::internal {

Begun OneSidedCalls::begin(const Call& call, const AccessCall& access) {
    auto resolved = windows_.resolve(access, Space::host);
    failure_ = resolved ? windows_.host().begin(*resolved) : resolved.take_status();
    if (!failure_) return Begun::refused;
    limit_ = {call.settings.timeout_ms, call.timeout_set_by};
    context_.begin_waiting();
    return Begun::yes;
}

Progress OneSidedCalls::advance() {
    const Progress progress = windows_.host().advance();
    if (progress == Progress::failed) [[unlikely]]
        failure_ = windows_.host().take_failure();
    else if (progress != Progress::blocked)
        context_.waiting.stir();
    return progress;
}

Status OneSidedCalls::look() {
    OneSided& host = windows_.host();
    context_.watch(limit_);
    return context_.watchdog.look_at_partners(
        host.missing(), context_.waiting.silence_us(), [&](int other) { return host.owed_by(other); },
        host.connecting(), "one-sided calls");
}

Status OneSidedCalls::cause() {
    OneSided& host = windows_.host();
    return context_.watchdog.look_at_partners(host.missing(), INT64_MAX,
                                              [&](int other) { return host.owed_by(other); });
}

}  // namespace weft::internal
