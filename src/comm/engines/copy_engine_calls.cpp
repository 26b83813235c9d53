#include "src/comm/engines/copy_engine_calls.hpp"

namespace weft::internal {

Begun CopyEngineCalls::begin(const Call& call, const CollectiveCall& collective) {
    GpuEngine& device = *context_.device;
    const DeviceCall wanted = device_call(call, collective);
    // Now a refusal concerns this rank alone.
    failure_ = device.collectives().prepare(wanted);
    if (!failure_) return failure_.code() == weftUnhandledCudaError ? Begun::failed : Begun::refused;
    call_ = call;
    by_kernels_ = false;
    offers_.resize(size_t(context_.ranks()));
    offers_[size_t(context_.rank)] = device.engine_copies().offer(wanted);
    Call exchange = gather_entries(Purpose::copies, context_.rank, offers_.data(), sizeof(CopyOffer));
    exchange.settings.timeout_ms = call.settings.timeout_ms;
    exchange.timeout_set_by = call.timeout_set_by;
    const Begun begun = host_.begin(exchange, std::get<CollectiveCall>(exchange.kind));
    if (begun != Begun::yes) failure_ = host_.take_failure();
    return begun;
}

Progress CopyEngineCalls::advance() {
    if (by_kernels_) return advance_kernels();
    const Progress progress = host_.advance();
    if (progress == Progress::failed) failure_ = host_.take_failure();
    if (progress != Progress::done) return progress;
    context_.row().position.finish(context_.sequence);
    return launch();
}

Progress CopyEngineCalls::launch() {
    GpuEngine& device = *context_.device;
    const auto& collective = std::get<CollectiveCall>(call_.kind);
    const DeviceCall wanted = device_call(call_, collective);
    if (device.engine_copies().agreed(wanted, offers_)) {
        const Operation& prepared = device.collectives().prepared();
        context_.row().position.enter(++context_.sequence, prepared);
        failure_ = device.engine_copies().launch(wanted, offers_, fingerprint(prepared));
        return failure_ ? Progress::done : Progress::failed;
    }
    by_kernels_ = kernels_.begin(call_, collective) == Begun::yes;
    if (by_kernels_) return advance_kernels();
    failure_ = kernels_.take_failure();
    return Progress::failed;
}

Progress CopyEngineCalls::advance_kernels() {
    const Progress progress = kernels_.advance();
    if (progress == Progress::failed) failure_ = kernels_.take_failure();
    return progress;
}

}  // namespace weft::internal
