// placing.cpp: finds the memory space and the stream of a call: host memory, the device, or host copies of device memory.
// Each call looks its buffers up again, because the user may have freed them since.
#include <algorithm>

#include "src/comm/communicator.hpp"
#include "src/streams/host_stream.hpp"

namespace weft::internal {

namespace {

// The memory from the first part of a buffer to the end of its last.
DeviceSpan extent(const void* buffer, const std::vector<PeerBuffer>& peer_buffers, size_t element) {
    uintptr_t begin = UINTPTR_MAX, end = 0;
    for (const PeerBuffer& peer_buffer : peer_buffers) {
        if (peer_buffer.count == 0) continue;
        const auto at = reinterpret_cast<uintptr_t>(peer_buffer.data);
        begin = std::min(begin, at);
        end = std::max(end, at + peer_buffer.count * element);
    }
    return end == 0 ? DeviceSpan{buffer, 0} : DeviceSpan{reinterpret_cast<const void*>(begin), end - begin};
}

Status no_device_for_stream() {
    return fail(error::argument_stream,
                "stream must be NULL or one of weftStreamCreate's: this communicator has no device, for {}",
                GpuEngine::why_none());
}

}  // namespace

Status Communicator::place_counts(const Call& call, CountsOnDevice& counts) {
    if (call.operation.space != Space::device && !call.copied)
        return fail(error::memory_kind,
                    "sendbuff and recvbuff are host memory: counts in device memory are for buffers in device memory; "
                    "weftAlltoAllv takes host memory");
    const size_t table = size_t(ranks()) * sizeof(uint64_t);
    const struct {
        const char* name;
        const uint64_t* address;
    } tables[] = {{"sendcounts", counts.sent},
                  {"sdispls", counts.send_places},
                  {"recvcounts", counts.received},
                  {"rdispls", counts.receive_places}};
    for (const auto& [name, address] : tables) {
        if (reinterpret_cast<uintptr_t>(address) % sizeof(uint64_t) != 0)
            return fail(error::argument_value, "{} does not begin at a multiple of 8 bytes: its elements are size_t",
                        name);
        WEFT_TRY(device_->buffers().room({name, {address, table}}).take_status());
    }
    const size_t element = datatype_bytes[call.operation.type];
    const auto elements = [&](const char* name, const void* buffer, uint64_t& room) -> Status {
        if (!buffer) return ok();
        auto bytes = device_->buffers().room({name, {buffer, element}});
        if (bytes) room = *bytes / element;
        return bytes.take_status();
    };
    WEFT_TRY(elements("sendbuff", call.send, counts.send_room));
    return elements("recvbuff", call.receive, counts.receive_room);
}

// A barrier in a CUDA stream is a call on device memory without buffers.
Status Communicator::place_barrier_on_device(Call& call) {
    if (!device_) return no_device_for_stream();
    auto placement = device_->buffers().placement_of({}, {}, call.stream);
    if (!placement) return placement.take_status();
    call.settings.preference = 0;  // the user's preference is for calls with data
    call.copied = device_->copies();
    if (!call.copied) call.operation.space = Space::device;
    return ok();
}

Status Communicator::place(Call& call) {
    const Collective collective = call.operation.collective;
    call.settings = call_settings_;
    call.queued = call.stream && is_host_stream(call.stream);
    if (call.queued) {
        auto stream = host_stream(call.stream);
        if (!stream) return stream.take_status();
    }
    if (collective == Collective::barrier) {
        if (call.stream && !call.queued) WEFT_TRY(place_barrier_on_device(call));
        if (call.operation.space == Space::device) return ok();
        if (tokens_.empty()) tokens_.resize(size_t(ranks()));
        call.receive = tokens_.data();
        call.send = tokens_.data() + rank_;
        return ok();
    }
    if (device_) {
        // Buffers that this rank does not use are not checked.
        const int parts = parts_of(collective, ranks());
        const size_t element = datatype_bytes[call.operation.type];
        const auto held = [&](const void* buffer, Held held, std::vector<PeerBuffer> PeerBuffers::*which) {
            if (uneven(collective)) return extent(buffer, call.peer_buffers->*which, element);
            return DeviceSpan{buffer, call.operation.bytes() * size_t(parts_held(held, parts))};
        };
        const Held in = input_of(collective, rank_, call.operation.root),
                   out = output_of(collective, rank_, call.operation.root);
        const DeviceArgument send{call.only_buffer ? call.only_buffer : "sendbuff",
                                  held(call.send, in, &PeerBuffers::sends)},
            receive{call.only_buffer ? call.only_buffer : "recvbuff", held(call.receive, out, &PeerBuffers::receives)};
        const bool sends = in != Held::nothing && (call.send || !uneven(collective)),
                   receives = out != Held::nothing && (call.receive || !uneven(collective));
        // Without buffers, the counts or the stream decide the memory space.
        const bool counts_alone = uneven(collective) && call.peer_buffers->counts.sent && !call.send && !call.receive;
        const void* const on_device = counts_alone  ? call.peer_buffers->counts.sent
                                      : call.queued ? nullptr
                                                    : call.stream;
        auto placement = device_->buffers().placement_of(sends ? send : receive, receives ? receive : send, on_device);
        if (!placement) return placement.take_status();
        if (placement->space == Space::device && call.queued)
            return fail(error::memory_kind,
                        "the buffers are device memory and the stream is weftStreamCreate's, which is for host "
                        "memory: pass a CUDA stream");
        if (placement->space == Space::device && call.operation.calls_function())
            return fail(error::memory_kind,
                        "a user's reduction works on host memory only: its function cannot run on a device");
        if (placement->space == Space::host && call.operand_on_device)
            return fail(error::argument_scalar,
                        "op {} has its scalar in device memory, and the buffers are host memory: residence "
                        "weftScalarHostImmediate serves both",
                        call.made);
        // The user may have freed the scalar after the reduction was made.
        if (call.operand_on_device)
            WEFT_TRY(device_->buffers().room({"the scalar", {call.operand, element}}).take_status());
        // With copies there are no windows of device memory, and registering one fails.
        call.copied = placement->space == Space::device && device_->copies() && !one_sided(collective);
        call.operation.space = call.copied ? Space::host : placement->space;
        call.mapped = placement->mapped;
        return ok();
    }
    if (call.stream && !call.queued) return no_device_for_stream();
    return ok();
}

Status Communicator::check_device_scalar(const void* scalar, size_t bytes) {
    if (!device_)
        return fail(error::argument_scalar, "residence weftScalarDevice: this communicator has no device, for {}",
                    GpuEngine::why_none());
    const DeviceArgument argument{"the scalar", {scalar, bytes}};
    auto placement = device_->buffers().placement_of(argument, argument, nullptr);
    if (!placement) return placement.take_status();
    if (placement->space == Space::device) return ok();
    return fail(error::argument_scalar, "the scalar is host memory: its residence is weftScalarHostImmediate");
}

}  // namespace weft::internal
