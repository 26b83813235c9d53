// collectives.cpp: checks the arguments of collectives and hands them on.
#include "src/api/guard.hpp"
#include "src/comm/group.hpp"
#include "weft/weft.h"

using namespace weft;

namespace {

Status check_reduction(weftComm* comm, weftDataType_t type, weftRedOp_t op, Communicator::Call& call) {
    if (!is_datatype(type))
        return fail(weftInvalidArgument, "datatype is {}; types are 0 to {}", int(type), weftNumTypes - 1);
    call.operation.type = uint8_t(type);
    if (op >= 0 && op < weftNumOps) [[likely]] {
        call.operation.op = uint8_t(op);
        return ok();
    }
    const Communicator::Scalar* scalar = comm->communicator->scalar(op);
    if (!scalar)
        return fail(weftInvalidArgument,
                    "op is {}; it is 0 to {}, or one that weftRedOpCreatePreMulSum made on this communicator", int(op),
                    weftNumOps - 1);
    if (scalar->type != type)
        return fail(weftInvalidArgument, "op {} was made for {}, the buffers hold {}", int(op), name_of(scalar->type),
                    name_of(type));
    call.operation.op = weftNumOps;
    call.scalar = scalar->bytes;
    return ok();
}

Status check_count(size_t count) {
    if (count > (size_t(1) << 48))
        return fail(weftInvalidArgument, "count is {}: counts are elements, and no memory holds that many", count);
    return ok();
}

Status check_buffers(const void* send, const void* receive, size_t count, weftDataType_t type) {
    if (count == 0) return ok();
    if (!send || !receive)
        return fail(weftInvalidArgument, "{} is NULL although count is {}", send ? "recvbuff" : "sendbuff", count);
    WEFT_TRY(check_count(count));
    const size_t bytes = count * size_of(type);
    const auto first = reinterpret_cast<uintptr_t>(send), second = reinterpret_cast<uintptr_t>(receive);
    if (first != second && (first < second ? second - first : first - second) < bytes)
        return fail(weftInvalidArgument,
                    "sendbuff and recvbuff overlap: {} bytes each, {} apart; they must be equal (in place) or disjoint",
                    bytes, first < second ? second - first : first - second);
    return ok();
}

}  // namespace

extern "C" {

weftResult_t weftAllReduce(const void* sendbuff, void* recvbuff, size_t count, weftDataType_t type, weftRedOp_t op,
                           weftComm_t comm, weftStream_t stream) {
    return guarded_comm(comm, [&]() -> Status {
        Communicator::Call call{};
        call.operation.collective = Collective::all_reduce;
        call.operation.count = count;
        call.send = sendbuff;
        call.receive = recvbuff;
        call.stream = stream;
        Inside inside(comm);
        if (!inside.entered()) [[unlikely]]
            return inside.refused();
        WEFT_TRY(check_reduction(comm, type, op, call));
        WEFT_TRY(check_buffers(sendbuff, recvbuff, count, type));
        WEFT_TRY(comm->communicator->place(call));
        if (Group& group = Group::current(); group.open()) {
            group.add(comm, call);
            return ok();
        }
        return comm->communicator->run(call);
    });
}

weftResult_t weftRedOpCreatePreMulSum(weftRedOp_t* op, void* scalar, weftDataType_t datatype,
                                      weftScalarResidence_t residence, weftComm_t comm) {
    return guarded_comm(comm, [&]() -> Status {
        if (!op || !scalar)
            return fail(weftInvalidArgument, "weftRedOpCreatePreMulSum: {} is NULL", op ? "scalar" : "op");
        if (!is_datatype(datatype))
            return fail(weftInvalidArgument, "datatype is {}; types are 0 to {}", int(datatype), weftNumTypes - 1);
        if (residence != weftScalarHostImmediate)
            return fail(weftInvalidArgument,
                        "residence must be weftScalarHostImmediate: Weft {}.{} reads scalars from host memory only",
                        WEFT_MAJOR, WEFT_MINOR);
        Inside inside(comm);
        if (!inside.entered()) return inside.refused();
        Communicator::Scalar copy{datatype, {}};
        __builtin_memcpy(copy.bytes, scalar, size_of(datatype));
        *op = weftRedOp_t(comm->communicator->make_scalar(copy));
        return ok();
    });
}

weftResult_t weftRedOpDestroy(weftRedOp_t op, weftComm_t comm) {
    return guarded_comm(comm, [&]() -> Status {
        Inside inside(comm);
        if (!inside.entered()) return inside.refused();
        if (Group::current().holds(comm))
            return fail(
                weftInvalidUsage,
                "weftRedOpDestroy inside a group that holds calls on this communicator: call weftGroupEnd first");
        if (!comm->communicator->drop_scalar(op))
            return fail(weftInvalidArgument, "op {} was not made by weftRedOpCreatePreMulSum on this communicator",
                        int(op));
        return ok();
    });
}

weftResult_t weftCommExplain(weftComm_t comm, size_t count, weftDataType_t type, weftRedOp_t op, char* text,
                             size_t capacity, size_t* needed) {
    return guarded_comm(comm, [&]() -> Status {
        if (!text && capacity > 0)
            return fail(weftInvalidArgument, "weftCommExplain: text is NULL although capacity is {}", capacity);
        Inside inside(comm);
        if (!inside.entered()) return inside.refused();
        Communicator::Call call{};
        WEFT_TRY(check_reduction(comm, type, op, call));
        WEFT_TRY(check_count(count));
        call.operation.collective = Collective::all_reduce;
        call.operation.count = count;
        const std::string whole = comm->communicator->explain(call.operation);
        if (needed) *needed = whole.size() + 1;
        if (capacity > 0) {
            const size_t written = std::min(whole.size(), capacity - 1);
            whole.copy(text, written);
            text[written] = 0;
        }
        return ok();
    });
}
}
