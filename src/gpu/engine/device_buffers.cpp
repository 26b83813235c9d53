#include "src/gpu/engine/device_buffers.hpp"

#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>

#include "src/drivers/cuda/device.hpp"
#include "src/drivers/cuda/stream.hpp"
#include "src/gpu/engine/device_memory.hpp"

namespace weft::internal {

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

// As far as its end is known; base 0: it is not. VMM memory of the user's may consist of several pieces, of which the
// driver tells one.
struct Allocation {
    CUdeviceptr base;
    size_t bytes;
};
Allocation allocation(const void* address, const PointerFacts& at) {
    if (at.kind == MemoryKind::device || at.kind == MemoryKind::pool) return {at.base, at.bytes};
    if (at.kind != MemoryKind::vmm) return {0, 0};
    const auto own = own_device_memory(address);
    return {reinterpret_cast<CUdeviceptr>(own.data()), own.size()};
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

Result<PointerFacts> DeviceBuffers::describe(const DeviceArgument& argument) {
    const auto [address, bytes] = argument.span;
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
            return fail(weftInvalidArgument,
                        "{}, at {}, is neither host memory nor memory that CUDA knows: has it been freed?",
                        argument.name, address);
        if (!own_) host_addresses_.insert(address);
    }
    return facts;
}

Status DeviceBuffers::check(const DeviceArgument& argument, const PointerFacts& at,
                            const std::string& unsupported_reason) const {
    const char* const name = argument.name;
    if (!unsupported_reason.empty()) return no_device_memory(name, unsupported_reason);
    // Managed memory comes to the device that touches it.
    if (at.kind != MemoryKind::managed && at.device != own_->device())
        return fail(weftInvalidArgument, "{} is memory of device {}, the communicator's rank {} is on device {}", name,
                    at.device, rank_, own_->device());
    const auto [base, bytes] = allocation(argument.span.address, at);
    const size_t offset = size_t(reinterpret_cast<CUdeviceptr>(argument.span.address) - base);
    if (base != 0 && offset + argument.span.bytes > bytes)
        return fail(weftInvalidArgument, "{} ends {} bytes behind its allocation, which has {}", name,
                    offset + argument.span.bytes - bytes, bytes);
    return ok();
}

Result<uint64_t> DeviceBuffers::room(const DeviceArgument& argument, const std::string& unsupported_reason) {
    auto at = describe(argument);
    if (!at) return at.take_status();
    if (!at->on_device())
        return fail(weftInvalidArgument, "{} is {}: it must be device memory", argument.name, name_of(at->kind));
    WEFT_TRY(check(argument, *at, unsupported_reason));
    const auto [base, bytes] = allocation(argument.span.address, *at);
    return base == 0 ? UINT64_MAX : base + bytes - reinterpret_cast<CUdeviceptr>(argument.span.address);
}

Result<BufferPlacement> DeviceBuffers::placement_of(const DeviceArgument& sent, const DeviceArgument& received,
                                                    bool stream, const std::string& unsupported_reason) {
    const DeviceSpan &send = sent.span, &receive = received.span;
    if (send.bytes == 0 && receive.bytes == 0 && (!send.address || !receive.address)) {
        if (stream && !unsupported_reason.empty())
            return fail(weftInvalidUsage, "there is a stream, but {}", unsupported_reason);
        return BufferPlacement{stream ? Space::device : Space::host, false};
    }
    auto from = describe(sent);
    if (!from) return from.take_status();
    Result<PointerFacts> to = PointerFacts(*from);
    if (receive.address != send.address) to = describe(received);
    if (!to) return to.take_status();
    // Without a device managed memory is the host's.
    const auto on_device = [&](const PointerFacts& at) {
        return at.on_device() && (own_ || at.kind != MemoryKind::managed);
    };
    if (on_device(*from) != on_device(*to))
        return fail(weftInvalidArgument, "{} is {}, {} is {}: both must be of one kind", sent.name, name_of(from->kind),
                    received.name, name_of(to->kind));
    if (!on_device(*from)) {
        if (stream)
            return fail(
                weftInvalidArgument,
                "{} is {}, and there is a stream: calls on host memory block, with stream NULL; if it should be "
                "device memory, it has been freed",
                sent.name, name_of(from->kind));
        return BufferPlacement{Space::host, false};
    }
    WEFT_TRY(check(sent, *from, unsupported_reason));
    WEFT_TRY(check(received, *to, unsupported_reason));
    // What other processes could map is ordinary memory of the primary context, not a graph's or another process's; or
    // it is Weft's own.
    const auto reached = [](const DeviceSpan& span, const PointerFacts& at) {
        return (at.kind == MemoryKind::device && at.ipc) ||
               (at.kind == MemoryKind::vmm && !own_device_memory(span.address).empty());
    };
    return BufferPlacement{Space::device, reached(send, *from) && reached(receive, *to)};
}

}  // namespace weft::internal
