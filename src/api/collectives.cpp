// collectives.cpp: checks the arguments of collectives and submits them.
#include <algorithm>

#include "src/api/arguments.hpp"
#include "src/api/guard.hpp"
#include "src/calls/group.hpp"
#include "src/calls/submit.hpp"
#include "src/comm/facts.hpp"
#include "weft/weft.h"

using namespace weft::internal;

namespace {

// Checks the buffers of this rank: NULL only if unused, overlapping only in place.
template <Collective collective>
Status check_buffers(const CollectiveCall& call, const char* only_buffer, int rank, int ranks) {
    const Operation& operation = call.operation;
    const int parts = parts_of(collective, ranks);
    WEFT_TRY(check_count(operation.count, parts));
    const size_t part_bytes = operation.bytes();
    if (part_bytes == 0) return ok();
    const Held in = input_of(collective, rank, operation.root), out = output_of(collective, rank, operation.root);
    const size_t in_bytes = part_bytes * size_t(parts_held(in, parts)),
                 out_bytes = part_bytes * size_t(parts_held(out, parts));
    if ((!call.send && in_bytes > 0) || (!call.receive && out_bytes > 0)) [[unlikely]]
        return fail(error::argument_null, "{} is NULL although count is {}",
                    only_buffer                  ? only_buffer
                    : !call.send && in_bytes > 0 ? "sendbuff"
                                                 : "recvbuff",
                    operation.count);
    if (in_bytes == 0 || out_bytes == 0) return ok();
    const auto first = reinterpret_cast<uintptr_t>(call.send), second = reinterpret_cast<uintptr_t>(call.receive);
    const bool overlap = first < second ? second - first < in_bytes : first - second < out_bytes;
    const bool can_be_in_place = !facts_of(collective).transposes;
    // In place means that both whole vectors would begin at the same address.
    const bool in_place = first - first_held(in, rank, part_bytes) == second - first_held(out, rank, part_bytes);
    if (!overlap || (in_place && can_be_in_place)) [[likely]]
        return ok();
    const char* where = in == out         ? "be equal (in place)"
                        : in == Held::own ? "have sendbuff at recvbuff + rank * count elements (in place)"
                                          : "have recvbuff at sendbuff + rank * count elements (in place)";
    return fail(error::argument_overlap,
                "sendbuff and recvbuff overlap ({} and {} bytes, {} apart); they must "
                "{}disjoint",
                in_bytes, out_bytes, first < second ? second - first : first - second,
                can_be_in_place ? fmt::format("{} or be ", where) : std::string("be "));
}

struct Arguments {
    const void* send = nullptr;
    void* receive = nullptr;
    size_t count = 0;
    weftDataType_t type = weftUint8;
    weftRedOp_t op = weftSum;
    int root = 0;
    const char* only_buffer = nullptr;  // see Call
};

// A template, so that the checks know the collective at compile time.
template <Collective collective>
weftResult_t run(const char* function, const Arguments& arguments, weftComm_t comm, weftStream_t stream) {
    return guarded_quick_call(function, comm, [&]() -> Status {
        constexpr CollectiveFacts facts = facts_of(collective);
        Call call{};
        auto& made = *std::get_if<CollectiveCall>(&call.kind);
        made.operation.collective = collective;
        made.operation.count = arguments.count;
        made.operation.root = arguments.root;
        made.send = arguments.send;
        made.receive = arguments.receive;
        call.stream = stream;
        call.only_buffer = arguments.only_buffer;
        Entered entered(comm);
        if (!entered.entered()) [[unlikely]]
            return entered.refused();
        Communicator& communicator = *comm->communicator;
        const bool quick = !stream && !Group::current_open() && has_quick_calls(communicator) &&
                           unsigned(arguments.op) < unsigned(weftNumOps) &&
                           !comm->has_own_stream.load(std::memory_order_relaxed);
        const CancelHeld held(!quick);
        WEFT_TRY(check_reduction(comm, arguments.type, facts.reduces ? arguments.op : weftSum, made.operation,
                                 made.operand));
        if constexpr (facts.rooted) WEFT_TRY(check_rank("root", arguments.root, communicator.ranks()));
        if constexpr (collective != Collective::barrier)
            WEFT_TRY(check_buffers<collective>(made, call.only_buffer, communicator.rank(), communicator.ranks()));
        return submit(entered, comm, {&call, 1});
    });
}

}  // namespace

extern "C" {

weftResult_t weftAllReduce(const void* sendbuff, void* recvbuff, size_t count, weftDataType_t datatype, weftRedOp_t op,
                           weftComm_t comm, weftStream_t stream) {
    return run<Collective::all_reduce>(__func__, {sendbuff, recvbuff, count, datatype, op}, comm, stream);
}

weftResult_t weftBroadcast(const void* sendbuff, void* recvbuff, size_t count, weftDataType_t datatype, int root,
                           weftComm_t comm, weftStream_t stream) {
    return run<Collective::broadcast>(__func__, {sendbuff, recvbuff, count, datatype, weftSum, root}, comm, stream);
}

weftResult_t weftBcast(void* buff, size_t count, weftDataType_t datatype, int root, weftComm_t comm,
                       weftStream_t stream) {
    return run<Collective::broadcast>(__func__, {buff, buff, count, datatype, weftSum, root, "buff"}, comm, stream);
}

weftResult_t weftReduce(const void* sendbuff, void* recvbuff, size_t count, weftDataType_t datatype, weftRedOp_t op,
                        int root, weftComm_t comm, weftStream_t stream) {
    return run<Collective::reduce>(__func__, {sendbuff, recvbuff, count, datatype, op, root}, comm, stream);
}

weftResult_t weftAllGather(const void* sendbuff, void* recvbuff, size_t sendcount, weftDataType_t datatype,
                           weftComm_t comm, weftStream_t stream) {
    return run<Collective::all_gather>(__func__, {sendbuff, recvbuff, sendcount, datatype}, comm, stream);
}

weftResult_t weftReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount, weftDataType_t datatype,
                               weftRedOp_t op, weftComm_t comm, weftStream_t stream) {
    return run<Collective::reduce_scatter>(__func__, {sendbuff, recvbuff, recvcount, datatype, op}, comm, stream);
}

weftResult_t weftAlltoAll(const void* sendbuff, void* recvbuff, size_t count, weftDataType_t datatype, weftComm_t comm,
                          weftStream_t stream) {
    return run<Collective::all_to_all>(__func__, {sendbuff, recvbuff, count, datatype}, comm, stream);
}

weftResult_t weftGather(const void* sendbuff, void* recvbuff, size_t count, weftDataType_t datatype, int root,
                        weftComm_t comm, weftStream_t stream) {
    return run<Collective::gather>(__func__, {sendbuff, recvbuff, count, datatype, weftSum, root}, comm, stream);
}

weftResult_t weftScatter(const void* sendbuff, void* recvbuff, size_t count, weftDataType_t datatype, int root,
                         weftComm_t comm, weftStream_t stream) {
    return run<Collective::scatter>(__func__, {sendbuff, recvbuff, count, datatype, weftSum, root}, comm, stream);
}

weftResult_t weftBarrier(weftComm_t comm, weftStream_t stream) {
    return run<Collective::barrier>(__func__, {.count = 1}, comm, stream);
}

weftResult_t weftRedOpCreatePreMulSum(weftRedOp_t* op, void* scalar, weftDataType_t datatype,
                                      weftScalarResidence_t residence, weftComm_t comm) {
    return guarded_comm(comm, [&]() -> Status {
        if (!op || !scalar)
            return fail(error::argument_null, "weftRedOpCreatePreMulSum: {} is NULL", op ? "scalar" : "op");
        WEFT_TRY(check_type(datatype));
        if (residence != weftScalarHostImmediate && residence != weftScalarDevice)
            return fail(error::argument_value,
                        "residence is {}; it must be weftScalarDevice or weftScalarHostImmediate", int(residence));
        Entered entered(comm);
        if (!entered.entered()) return entered.refused();
        MadeReduction made{datatype, Operation::op_of_scaled_sum};
        if (residence == weftScalarDevice) {
            WEFT_TRY(comm->communicator->inputs().placement.check_device_scalar(scalar, size_of(datatype)));
            made.on_device = scalar;
        } else {
            __builtin_memcpy(made.scalar, scalar, size_of(datatype));
        }
        *op = weftRedOp_t(comm->communicator->inputs().reductions.make(made));
        return ok();
    });
}

weftResult_t weftRedOpCreate(weftRedOp_t* op, weftRedOpFunction_t function, void* context, weftDataType_t datatype,
                             int commutative, weftComm_t comm) {
    return guarded_comm(comm, [&]() -> Status {
        if (!op || !function) return fail(error::argument_null, "weftRedOpCreate: {} is NULL", op ? "function" : "op");
        WEFT_TRY(check_type(datatype));
        if (commutative != 0 && commutative != 1)
            return fail(error::argument_value,
                        "weftRedOpCreate: commutative is {}; it must be 1, or 0 if operands must stay "
                        "in rank order",
                        commutative);
        Entered entered(comm);
        if (!entered.entered()) return entered.refused();
        MadeReduction made{datatype, commutative ? Operation::op_of_function : Operation::op_of_ordered_function};
        made.by = {function, context, datatype};
        *op = weftRedOp_t(comm->communicator->inputs().reductions.make(made));
        return ok();
    });
}

weftResult_t weftRedOpDestroy(weftRedOp_t op, weftComm_t comm) {
    return guarded_comm(comm, [&]() -> Status {
        Entered entered(comm);
        if (!entered.entered()) return entered.refused();
        if (Group::current().holds(comm))
            return fail(
                error::group_holds_calls,
                "weftRedOpDestroy inside a group that holds calls on this communicator: call weftGroupEnd first");
        if (!comm->communicator->inputs().reductions.drop(op))
            return fail(error::argument_reduction,
                        "op {} was not made by weftRedOpCreate or weftRedOpCreatePreMulSum on this "
                        "communicator, or was destroyed before",
                        int(op));
        return ok();
    });
}

weftResult_t weftCommExplain(weftComm_t comm, size_t count, weftDataType_t datatype, weftRedOp_t op, char* text,
                             size_t capacityBytes, size_t* neededBytes) {
    return weftCommExplainCollective(comm, name_of(Collective::all_reduce), count, datatype, op, 0, text, capacityBytes,
                                     neededBytes);
}

weftResult_t weftCommExplainCollective(weftComm_t comm, const char* collective, size_t count, weftDataType_t datatype,
                                       weftRedOp_t op, int root, char* text, size_t capacityBytes,
                                       size_t* neededBytes) {
    return guarded_comm(comm, [&]() -> Status {
        if (!collective || (!text && capacityBytes > 0))
            return fail(error::argument_null, "{} is NULL{}", collective ? "text" : "collective",
                        collective ? fmt::format(" although capacityBytes is {}", capacityBytes) : "");
        const auto named = collective_named(collective);
        if (!named ||
            std::find(std::begin(all_collectives), std::end(all_collectives), *named) == std::end(all_collectives)) {
            std::string names;
            for (const Collective each : all_collectives)
                names += fmt::format("{}{}", names.empty() ? "" : ", ", name_of(each));
            return fail(error::argument_value, "collective is `{}`; those whose algorithm is chosen are {}", collective,
                        names);
        }
        Inside inside(comm);
        if (!inside.entered()) return inside.refused();
        const int ranks = comm->communicator->ranks();
        Operation operation;
        Operand operand;
        const CollectiveFacts facts = facts_of(*named);
        WEFT_TRY(check_reduction(comm, datatype, facts.reduces ? op : weftSum, operation, operand));
        WEFT_TRY(check_count(count, parts_of(*named, ranks)));
        if (facts.rooted) WEFT_TRY(check_rank("root", root, ranks));
        operation.collective = *named;
        operation.count = count;
        operation.root = facts.rooted ? root : 0;
        const std::string whole = explain(*comm->communicator, operation);
        if (neededBytes) *neededBytes = whole.size() + 1;
        if (capacityBytes > 0) {
            const size_t written = std::min(whole.size(), capacityBytes - 1);
            whole.copy(text, written);
            text[written] = 0;
        }
        return ok();
    });
}
}
