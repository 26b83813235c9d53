#include "src/gpu/engine/device_buffers.hpp"

#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>

#include "src/base/log.hpp"
#include "src/drivers/cuda/device.hpp"
#include "src/drivers/cuda/stream.hpp"
#include "src/gpu/engine/device_memory.hpp"

namespace weft::internal {

using cuda::BufferRegistry;
using cuda::Context;
using cuda::ContextScope;
using cuda::MemoryKind;
using cuda::PointerFacts;
using cuda::RelaxedCapture;

namespace {

// Memory that cannot be read here is not host memory. Usually it is freed device memory.
bool readable(const void* address, size_t bytes) {
    for (const size_t offset : {size_t(0), bytes - 1}) {
        char byte;
        const iovec to{&byte, 1}, from{const_cast<char*>(static_cast<const char*>(address)) + offset, 1};
        if (process_vm_readv(getpid(), &to, 1, &from, 1, 0) != 1 && errno == EFAULT) return false;
    }
    return true;
}

// The allocation around an address; base 0: unknown. Users' VMM memory may consist of several pieces, and the driver
// reports only one of them.
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
    return fail(error::gpu_unavailable, "{} is device memory, but {}", buffer, why);
}

}  // namespace

// The driver answers queries only if some context is current. Null: no device is in use, so there is no device memory.
Result<CUcontext> DeviceBuffers::any_context() {
    if (own()) return own()->handle();
    const cuda::Driver& driver = *gpu_.device.driver;
    CUcontext current = nullptr;
    WEFT_TRY(driver.check(driver.CtxGetCurrent(&current), "query the current context"));
    if (current != nullptr) return current;
    if (other_context_.handle() == nullptr) {
        auto context = Context::of_any_device(driver);
        if (!context) return context.take_status();
        other_context_ = std::move(*context);
    }
    return other_context_.handle();
}

// In the context that is current, which usually suffices, or in one that exists.
Result<PointerFacts> DeviceBuffers::query(const void* address) {
    const cuda::Driver& driver = *gpu_.device.driver;
    if (own())
        if (auto described = describe_pointer(driver, address, &known_vmm_)) return described;
    const RelaxedCapture relaxed(driver);
    auto context = any_context();
    if (!context) return context.take_status();
    if (*context == nullptr) return PointerFacts{};
    ContextScope scope(driver, *context);
    WEFT_TRY(scope.take_status());
    return describe_pointer(driver, address, &known_vmm_);
}

Result<PointerFacts> DeviceBuffers::describe(const DeviceArgument& argument) {
    const auto [address, bytes] = argument.span;
    // A communicator with a device always asks: a wrong answer would be worse than the cost of the query.
    if (!own() && host_addresses_.contains(address)) return PointerFacts{};
    auto described = query(address);
    if (!described) return described;
    const PointerFacts facts = *described;
    if (facts.kind == MemoryKind::unknown && bytes > 0) {
        if (!readable(address, bytes))
            return fail(error::memory_unknown,
                        "{}, at {}, is neither host memory nor memory that CUDA knows: was it freed?", argument.name,
                        address);
        if (!own()) host_addresses_.insert(address);
    }
    return facts;
}

Status DeviceBuffers::check(const DeviceArgument& argument, const PointerFacts& at) const {
    const char* const name = argument.name;
    if (!gpu_.unsupported_reason().empty()) return no_device_memory(name, gpu_.unsupported_reason());
    // Managed memory migrates to the device that accesses it.
    if (at.kind != MemoryKind::managed && at.device != own()->device())
        return fail(error::memory_device, "{} is memory of device {}, and the communicator's rank {} is on device {}",
                    name, at.device, gpu_.rank, own()->device());
    const auto [base, bytes] = allocation(argument.span.address, at);
    const size_t offset = size_t(reinterpret_cast<CUdeviceptr>(argument.span.address) - base);
    if (base != 0 && offset + argument.span.bytes > bytes)
        return fail(error::memory_bounds, "{} ends {} bytes after its allocation of {} bytes", name,
                    offset + argument.span.bytes - bytes, bytes);
    return ok();
}

Result<uint64_t> DeviceBuffers::room(const DeviceArgument& argument) {
    auto at = describe(argument);
    if (!at) return at.take_status();
    if (!at->on_device())
        return fail(error::memory_kind, "{} is {}: it must be device memory", argument.name, name_of(at->kind));
    WEFT_TRY(check(argument, *at));
    const auto [base, bytes] = allocation(argument.span.address, *at);
    return base == 0 ? UINT64_MAX : base + bytes - reinterpret_cast<CUdeviceptr>(argument.span.address);
}

Result<BufferPlacement> DeviceBuffers::placement_of(const DeviceArgument& sent, const DeviceArgument& received,
                                                    const void* stream) {
    const DeviceSpan &send = sent.span, &receive = received.span;
    if (send.bytes == 0 && receive.bytes == 0 && (!send.address || !receive.address)) {
        if (stream && !gpu_.unsupported_reason().empty())
            return fail(error::gpu_unavailable, "the call has a stream, but {}", gpu_.unsupported_reason());
        return BufferPlacement{stream ? Space::device : Space::host, false, false};
    }
    // The legacy stream may also mean host memory.
    if (trusts_ && stream && own() && gpu_.unsupported_reason().empty()) {
        const bool send_mapped = !own_device_memory(send.address).empty();
        return BufferPlacement{Space::device, send_mapped && !own_device_memory(receive.address).empty(), send_mapped};
    }
    auto from = describe(sent);
    if (!from) return from.take_status();
    Result<PointerFacts> to = PointerFacts(*from);
    if (receive.address != send.address) to = describe(received);
    if (!to) return to.take_status();
    // Without a device managed memory counts as host memory.
    const auto on_device = [&](const PointerFacts& at) {
        return at.on_device() && (own() || at.kind != MemoryKind::managed);
    };
    if (on_device(*from) != on_device(*to))
        return fail(error::memory_kind, "{} is {}, and {} is {}: both must be of one kind", sent.name,
                    name_of(from->kind), received.name, name_of(to->kind));
    if (!on_device(*from)) {
        if (stream)
            return fail(
                error::memory_kind,
                "{} is {}, and the call has a stream: calls on host memory block and take stream NULL; if the buffer "
                "was device memory, it has been freed",
                sent.name, name_of(from->kind));
        return BufferPlacement{Space::host, false, false};
    }
    WEFT_TRY(check(sent, *from));
    WEFT_TRY(check(received, *to));
    // Other processes can map cuMemAlloc memory of the primary context, but not a graph's or another process's memory;
    // or it is Weft's own memory.
    const auto reached = [](const DeviceSpan& span, const PointerFacts& at) {
        return (at.kind == MemoryKind::device && at.ipc) ||
               (at.kind == MemoryKind::vmm && !own_device_memory(span.address).empty());
    };
    const bool send_mapped = reached(send, *from);
    return BufferPlacement{Space::device, send_mapped && reached(receive, *to), send_mapped};
}

std::optional<int> DeviceBuffers::add(const void* address, size_t bytes) {
    if (!own()) return {};
    const ContextScope scope(*own());
    const RelaxedCapture relaxed(*gpu_.device.driver);
    const auto facts = describe_pointer(*gpu_.device.driver, address);
    if (facts && !facts->on_device()) return {};
    if (!facts) WEFT_LOG_RANK(gpu_.rank, info, mem, "cannot register {}: {}", address, facts.status().sentence());
    if (!facts) return no_entry;
    if (!gpu_.exports_buffers || bytes == 0) return no_entry;
    const auto entry = gpu_.buffer_registry->add(address, bytes, BufferRegistry::RegistrationUse::buffer);
    if (entry) {
        if (cuda::SwitchedBuffers* const switched = gpu_.domain->switched_buffers())
            switched->add(*entry, address, bytes);
        return *entry;
    }
    WEFT_LOG_RANK(gpu_.rank, info, mem, "{} bytes of device memory at {} are not mapped by others: {}", bytes, address,
                  entry.status().sentence());
    return no_entry;
}

Status DeviceBuffers::remove(int entry) {
    // Our kernels that have ended have synchronised with their peers after the last access.
    gpu_.domain->launches().finish();
    WEFT_TRY(gpu_.buffer_registry->remove(entry, BufferRegistry::RegistrationUse::buffer));
    if (cuda::SwitchedBuffers* const switched = gpu_.domain->switched_buffers()) switched->remove(entry);
    return ok();
}

}  // namespace weft::internal
