// devices.cpp: the backend's calls on tensors of devices.
#include <ATen/DeviceAccelerator.h>

#include "backend.hpp"
#include "failure.hpp"
#include "tensors.hpp"

namespace weft_torch {

std::shared_ptr<DeviceGroup> Backend::device_group(const c10::Device& device) {
    std::lock_guard lock(channels_mutex_);
    if (ended_) std::rethrow_exception(ended_failure());
    for (const auto& group : devices_)
        if (group->device() == device) return group;
    DeviceSettings device_settings{settings(c10::str(" on ", c10::DeviceTypeName(device.type(), true))),
                                   options_->high_priority_stream};
    device_settings.communicator.device = device.index();
    devices_.push_back(
        std::make_shared<DeviceGroup>(device, own_store(), device_numbers_, rank_, size_, device_settings, hooks_));
    if (times_devices_) devices_.back()->time_operations();
    return devices_.back();
}

std::vector<std::shared_ptr<DeviceGroup>> Backend::device_groups() {
    std::lock_guard lock(channels_mutex_);
    return devices_;
}

void Backend::eagerConnectSingleDevice(at::Device device) {
    check_process();
    if (!device.is_cpu()) device_group(with_index(device))->communicator(options_->timeout);
}

WorkPtr Backend::run_on_device(const c10::Device& device, Title title, const Tensors& inputs, Tensors outputs,
                               const std::vector<Call>& calls, Milliseconds limit, bool async, bool blocks_host) {
    Operation operation{rank_,     title.type, title.name,  std::move(outputs),
                        sequence_, limit,      blocks_host, Extension::claim(extension_)};
    return device_group(device)->run(std::move(operation), inputs, calls, async);
}

void Backend::enableCollectivesTiming() {
    times_devices_ = true;
    for (const auto& group : device_groups()) group->time_operations();
}

// Messages of a batch are one group of calls, as in NCCL. Tags are not sent.
WorkPtr Backend::device_message(const char* call, const at::Tensor& tensor, int peer, bool sends) {
    if (peer != rank_ || !is_coalescing()) checked_peer(call, peer);
    const Title title = sends ? Title{c10d::OpType::SEND, "weft:send"} : Title{c10d::OpType::RECV, "weft:recv"};
    if (is_coalescing()) {
        const Tensors both{tensor};
        return submit(title, both, both, {message_call(tensor, peer, sends)}, c10d::kUnsetTimeout, true);
    }
    Operation operation{rank_,      title.type,
                        title.name, {tensor},
                        sequence_,  chosen(c10d::kUnsetTimeout),
                        false,      Extension::claim(extension_)};
    return device_group(tensor.device())->message(std::move(operation), tensor, peer, sends);
}

std::exception_ptr Backend::end_devices() {
    std::exception_ptr unknown;
    // abort() still finds them.
    for (const auto& group : device_groups())
        if (auto failure = group->end(); failure && !unknown) unknown = failure;
    std::vector<std::shared_ptr<DeviceGroup>> ended;
    std::lock_guard lock(channels_mutex_);
    ended.swap(devices_);
    return unknown;
}

// torch does not pass the device on. It is the one that the caller names, the group's, or the first one that the group used.
std::optional<c10::Device> Backend::barrier_device(const c10d::BarrierOptions& options) {
    if (options.device && !options.device->is_cpu()) return with_index(*options.device);
    if (!options.device_ids.empty()) {
        if (const auto type = at::getAccelerator()) return c10::Device(*type, c10::DeviceIndex(options.device_ids[0]));
    }
    if (const auto bound = getBoundDeviceId(); bound && !bound->is_cpu()) return bound;
    for (const auto& group : device_groups())
        if (group->is_made()) return group->device();
    return std::nullopt;
}

}  // namespace weft_torch
