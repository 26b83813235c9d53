#include "src/comm/device_buffers.hpp"

#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>

#include "src/comm/device_memory.hpp"
#include "src/drivers/cuda/device.hpp"
#include "src/drivers/cuda/stream.hpp"

namespace weft {

using cuda::Context;
using cuda::ContextScope;
using cuda::MemoryKind;
using cuda::PointerFacts;
using cuda::RelaxedCapture;

namespace {

// What cannot be read here is no host memory: device memory that was freed, above all.
bool readable(const void* address, size_t bytes) {
    for (const size_t offset : {size_t(0), bytes - 1}) {
        char byte;
        const iovec to{&byte, 1}, from{const_cast<char*>(static_cast<const char*>(address)) + offset, 1};
        if (process_vm_readv(getpid(), &to, 1, &from, 1, 0) != 1 && errno == EFAULT) return false;
    }
    return true;
}

Status no_device_memory(const char* buffer, const std::string& why) {
    return fail(weftInvalidUsage, "{} is device memory, but {}", buffer, why);
}

}  // namespace

// The driver answers only where some context is current. Null: no device is in use, so there is no memory of any.
Result<CUcontext> DeviceBuffers::any_context() {
    if (own_) return own_->handle();
    CUcontext own = nullptr;
    WEFT_TRY(driver_->check(driver_->CtxGetCurrent(&own), "tell the current context"));
    if (own != nullptr) return own;
    if (other_context_.handle() != nullptr) return other_context_.handle();
    auto count = device_count(*driver_);
    if (!count) return count.take_status();
    for (int number = 0; number < *count; ++number) {
        unsigned flags = 0;
        int active = 0;
        WEFT_TRY(
            driver_->check(driver_->DevicePrimaryCtxGetState(number, &flags, &active), "look at device {}", number));
        if (!active) continue;
        auto context = Context::retain(*driver_, number);
        if (!context) return context.take_status();
        other_context_ = std::move(*context);
        return other_context_.handle();
    }
    return CUcontext(nullptr);
}

Result<PointerFacts> DeviceBuffers::describe(const void* address, size_t bytes) {
    // Where calls are on device memory a wrong answer would be worse than asking.
    if (!own_ && host_addresses_.contains(address)) return PointerFacts{};
    const RelaxedCapture relaxed(*driver_);
    auto context = any_context();
    if (!context) return context.take_status();
    PointerFacts facts;
    if (*context != nullptr) {
        ContextScope scope(*driver_, *context);
        WEFT_TRY(scope.take_status());
        auto described = describe_pointer(*driver_, address);
        if (!described) return described;
        facts = *described;
    }
    if (facts.kind == MemoryKind::unknown && bytes > 0) {
        if (!readable(address, bytes))
            return fail(weftInvalidArgument, "{} is neither host memory nor memory that CUDA knows: has it been freed?",
                        address);
        if (!own_) host_addresses_.insert(address);
    }
    return facts;
}

Status DeviceBuffers::check(const char* name, const void* address, size_t bytes, const PointerFacts& at,
                            const std::string& why_not) const {
    if (!why_not.empty()) return no_device_memory(name, why_not);
    // Managed memory comes to the device that touches it.
    if (at.kind != MemoryKind::managed && at.device != own_->device())
        return fail(weftInvalidArgument, "{} is memory of device {}, the communicator's rank {} is on device {}", name,
                    at.device, rank_, own_->device());
    // VMM memory may consist of several pieces, of which the driver tells one.
    const size_t offset = size_t(reinterpret_cast<CUdeviceptr>(address) - at.base);
    if (at.kind == MemoryKind::device && at.base != 0 && offset + bytes > at.bytes)
        return fail(weftInvalidArgument, "{} ends {} bytes behind its allocation, which has {}", name,
                    offset + bytes - at.bytes, at.bytes);
    return ok();
}

Result<uint64_t> DeviceBuffers::room(const char* name, const DeviceSpan& span, const std::string& why_not) {
    auto at = describe(span.address, span.bytes);
    if (!at) return at.take_status();
    if (!at->on_device())
        return fail(weftInvalidArgument, "{} is {}: it must be device memory", name, name_of(at->kind));
    WEFT_TRY(check(name, span.address, span.bytes, *at, why_not));
    if (at->kind != MemoryKind::device || at->base == 0) return UINT64_MAX;
    return at->base + at->bytes - reinterpret_cast<CUdeviceptr>(span.address);
}

Result<DevicePlace> DeviceBuffers::place(const DeviceSpan& send, const DeviceSpan& receive, bool stream,
                                         const std::string& why_not) {
    if (send.bytes == 0 && receive.bytes == 0 && (!send.address || !receive.address)) {
        if (stream && !why_not.empty()) return fail(weftInvalidUsage, "there is a stream, but {}", why_not);
        return DevicePlace{stream ? Space::device : Space::host, false};
    }
    auto from = describe(send.address, send.bytes);
    if (!from) return from.take_status();
    Result<PointerFacts> to = PointerFacts(*from);
    if (receive.address != send.address) to = describe(receive.address, receive.bytes);
    if (!to) return to.take_status();
    // Without a device managed memory is the host's.
    const auto on_device = [&](const PointerFacts& at) {
        return at.on_device() && (own_ || at.kind != MemoryKind::managed);
    };
    if (on_device(*from) != on_device(*to))
        return fail(weftInvalidArgument, "sendbuff is {}, recvbuff is {}: both must be of one kind",
                    name_of(from->kind), name_of(to->kind));
    if (!on_device(*from)) {
        if (stream)
            return fail(weftInvalidArgument,
                        "sendbuff is {}, and there is a stream: calls on host memory block, with stream NULL; if it "
                        "should be device memory, it has been freed",
                        name_of(from->kind));
        return DevicePlace{Space::host, false};
    }
    WEFT_TRY(check("sendbuff", send.address, send.bytes, *from, why_not));
    WEFT_TRY(check("recvbuff", receive.address, receive.bytes, *to, why_not));
    // What other processes could map is ordinary memory of the primary context, not a graph's or another process's; or
    // it is Weft's own.
    const auto reached = [](const DeviceSpan& span, const PointerFacts& at) {
        return (at.kind == MemoryKind::device && at.ipc) ||
               (at.kind == MemoryKind::vmm && is_own_device_memory(span.address, span.bytes));
    };
    return DevicePlace{Space::device, reached(send, *from) && reached(receive, *to)};
}

}  // namespace weft
