#include "src/comm/call_placement.hpp"

#include <algorithm>

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

Status CallPlacement::place_counts(const Call& call, CountsOnDevice& counts) {
    if (call.space != Space::device && !call.copied)
        return fail(error::memory_kind,
                    "sendbuff and recvbuff are host memory: counts in device memory are for buffers in device memory; "
                    "weftAlltoAllv takes host memory");
    const size_t table = size_t(context_.ranks()) * sizeof(uint64_t);
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
        WEFT_TRY(context_.device->buffers().room({name, {address, table}}).take_status());
    }
    const auto& uneven = std::get<UnevenCall>(call.kind);
    const size_t element = datatype_bytes[uneven.operation.type];
    const auto elements = [&](const char* name, const void* buffer, uint64_t& room) -> Status {
        if (!buffer) return ok();
        auto bytes = context_.device->buffers().room({name, {buffer, element}});
        if (bytes) room = *bytes / element;
        return bytes.take_status();
    };
    WEFT_TRY(elements("sendbuff", uneven.send, counts.send_room));
    return elements("recvbuff", uneven.receive, counts.receive_room);
}

// A barrier in a CUDA stream is a call on device memory without buffers.
Status CallPlacement::place_barrier_on_device(Call& call) {
    if (!context_.device) return no_device_for_stream();
    auto placement = context_.device->buffers().placement_of({}, {}, call.stream);
    if (!placement) return placement.take_status();
    call.settings.preference = 0;  // the user's preference is for calls with data
    call.copied = context_.device->copies();
    if (!call.copied) call.space = Space::device;
    return ok();
}

Status CallPlacement::place_barrier(Call& call, CollectiveCall& barrier) {
    if (call.stream && !call.queued) WEFT_TRY(place_barrier_on_device(call));
    if (call.space == Space::device) return ok();
    if (tokens_.empty()) tokens_.resize(size_t(context_.ranks()));
    barrier.receive = tokens_.data();
    barrier.send = tokens_.data() + context_.rank;
    return ok();
}

CallPlacement::Buffers CallPlacement::buffers_of(const Call& call) const {
    const void* const stream = call.queued ? nullptr : call.stream;
    const char* const send = call.only_buffer ? call.only_buffer : "sendbuff";
    const char* const receive = call.only_buffer ? call.only_buffer : "recvbuff";
    if (const auto* message = std::get_if<MessageCall>(&call.kind)) {
        const DeviceSpan span{message->data, message->bytes()};
        return {{send, span}, {receive, span}, message->outgoing, !message->outgoing, stream};
    }
    if (const auto* access = std::get_if<AccessCall>(&call.kind)) {
        const DeviceSpan span{access->data, access->bytes};
        using RmaOp = OneSidedCall::RmaOp;
        return {{send, span}, {receive, span}, access->kind == RmaOp::put, access->kind == RmaOp::get, stream};
    }
    if (const auto* uneven = std::get_if<UnevenCall>(&call.kind)) {
        const Operation& operation = uneven->operation;
        const PeerBuffers& parts = *uneven->peer_buffers;
        const size_t element = datatype_bytes[operation.type];
        const bool sends = input_of(operation.collective, context_.rank, operation.root) != Held::nothing;
        const bool receives = output_of(operation.collective, context_.rank, operation.root) != Held::nothing;
        // Without buffers, the counts or the stream decide the memory space.
        const bool counts_alone = parts.counts.sent && !uneven->send && !uneven->receive;
        return {{send, extent(uneven->send, parts.sends, element)},
                {receive, extent(uneven->receive, parts.receives, element)},
                sends && uneven->send,
                receives && uneven->receive,
                counts_alone ? parts.counts.sent : stream};
    }
    const auto& collective = std::get<CollectiveCall>(call.kind);
    const Operation& operation = collective.operation;
    const int parts = parts_of(operation.collective, context_.ranks());
    const auto held = [&](const void* buffer, Held held) {
        return DeviceSpan{buffer, operation.bytes() * size_t(parts_held(held, parts))};
    };
    const Held in = input_of(operation.collective, context_.rank, operation.root),
               out = output_of(operation.collective, context_.rank, operation.root);
    return {{send, held(collective.send, in)},
            {receive, held(collective.receive, out)},
            in != Held::nothing,
            out != Held::nothing,
            stream};
}

Status CallPlacement::check_operand(const Operation& operation, const Operand& operand, Space space) {
    if (space == Space::device && operation.calls_function())
        return fail(error::memory_kind,
                    "a user's reduction works on host memory only: its function cannot run on a device");
    if (!operand.on_device) return ok();
    if (space == Space::host)
        return fail(error::argument_scalar,
                    "op {} has its scalar in device memory, and the buffers are host memory: residence "
                    "weftScalarHostImmediate serves both",
                    operand.reduction);
    // The user may have freed the scalar after the reduction was made.
    return context_.device->buffers()
        .room({"the scalar", {operand.data, datatype_bytes[operation.type]}})
        .take_status();
}

Status CallPlacement::place(Call& call) {
    call.settings = settings_.get();
    call.queued = call.stream && is_host_stream(call.stream);
    if (call.queued) {
        auto stream = host_stream(call.stream);
        if (!stream) return stream.take_status();
    }
    auto* const collective = std::get_if<CollectiveCall>(&call.kind);
    if (collective && collective->operation.collective == Collective::barrier) return place_barrier(call, *collective);
    if (!context_.device) return call.stream && !call.queued ? no_device_for_stream() : ok();
    GpuEngine& device = *context_.device;
    // Buffers that this rank does not use are not checked.
    const Buffers buffers = buffers_of(call);
    auto placement =
        device.buffers().placement_of(buffers.sends ? buffers.send : buffers.receive,
                                      buffers.receives ? buffers.receive : buffers.send, buffers.on_device);
    if (!placement) return placement.take_status();
    if (placement->space == Space::device && call.queued)
        return fail(error::memory_kind,
                    "the buffers are device memory and the stream is weftStreamCreate's, which is for host memory: "
                    "pass a CUDA stream");
    if (collective) WEFT_TRY(check_operand(collective->operation, collective->operand, placement->space));
    if (auto* uneven = std::get_if<UnevenCall>(&call.kind))
        WEFT_TRY(check_operand(uneven->operation, uneven->operand, placement->space));
    // With copies there are no windows of device memory, and registering one fails.
    call.copied = placement->space == Space::device && device.copies() && !call.is_access();
    call.space = call.copied ? Space::host : placement->space;
    call.mapped = placement->mapped;
    call.send_mapped = placement->send_mapped;
    return ok();
}

Status CallPlacement::check_device_scalar(const void* scalar, size_t bytes) {
    if (!context_.device)
        return fail(error::argument_scalar, "residence weftScalarDevice: this communicator has no device, for {}",
                    GpuEngine::why_none());
    const DeviceArgument argument{"the scalar", {scalar, bytes}};
    auto placement = context_.device->buffers().placement_of(argument, argument, nullptr);
    if (!placement) return placement.take_status();
    if (placement->space == Space::device) return ok();
    return fail(error::argument_scalar, "the scalar is host memory: its residence is weftScalarHostImmediate");
}

}  // namespace weft::internal
