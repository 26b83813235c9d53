// point_to_point.cpp: checks the arguments of sends and receives and submits them.
#include "src/api/arguments.hpp"
#include "src/api/guard.hpp"
#include "src/calls/group.hpp"
#include "src/calls/submit.hpp"
#include "weft/weft.h"

using namespace weft::internal;

namespace {

using Caller = MessageCaller;

Status check_buffer(const char* name, const void* buffer, size_t count) {
    WEFT_TRY(check_count(count, 1));
    if (buffer || count == 0) [[likely]]
        return ok();
    return fail(error::argument_null, "{} is NULL although its count is {}", name, count);
}

Call send_call(Caller by, const void* buffer, size_t count, weftDataType_t type, int peer, weftStream_t stream) {
    return {.kind = MessageCall{peer, true, const_cast<void*>(buffer), count, type, by}, .stream = stream};
}
Call receive_call(Caller by, void* buffer, size_t count, weftDataType_t type, int peer, weftStream_t stream) {
    return {.kind = MessageCall{peer, false, buffer, count, type, by}, .stream = stream};
}

// The messages of one call of the user.
Status run_messages(Entered& entered, weftComm_t comm, std::span<Call> messages) {
    if (messages.size() == 1 && std::get<MessageCall>(messages[0].kind).peer == comm->communicator->rank() &&
        !Group::current_open())
        return fail(error::usage_self_message,
                    "peer is this rank itself; a message to itself needs weftSend and weftRecv in "
                    "one group, or weftSendRecv");
    return submit(entered, comm, messages);
}

// A send or a receive; `name` is the name of its buffer.
weftResult_t run_one(const char* function, const char* name, Call call, weftComm_t comm) {
    return guarded_call(function, comm, [&]() -> Status {
        Entered entered(comm);
        if (!entered.entered()) [[unlikely]]
            return entered.refused();
        const auto& message = std::get<MessageCall>(call.kind);
        WEFT_TRY(check_type(message.type));
        WEFT_TRY(check_rank("peer", message.peer, comm->communicator->ranks()));
        WEFT_TRY(check_buffer(name, message.data, message.count));
        return run_messages(entered, comm, {&call, 1});
    });
}

}  // namespace

extern "C" {

weftResult_t weftSend(const void* sendbuff, size_t count, weftDataType_t datatype, int peer, weftComm_t comm,
                      weftStream_t stream) {
    return run_one(__func__, "sendbuff", send_call(Caller::send, sendbuff, count, datatype, peer, stream), comm);
}

weftResult_t weftRecv(void* recvbuff, size_t count, weftDataType_t datatype, int peer, weftComm_t comm,
                      weftStream_t stream) {
    return run_one(__func__, "recvbuff", receive_call(Caller::receive, recvbuff, count, datatype, peer, stream), comm);
}

weftResult_t weftSendRecv(const void* sendbuff, size_t sendcount, int dest, void* recvbuff, size_t recvcount,
                          int source, weftDataType_t datatype, weftComm_t comm, weftStream_t stream) {
    return guarded_call(__func__, comm, [&]() -> Status {
        Entered entered(comm);
        if (!entered.entered()) [[unlikely]]
            return entered.refused();
        const int ranks = comm->communicator->ranks();
        WEFT_TRY(check_type(datatype));
        WEFT_TRY(check_rank("dest", dest, ranks));
        WEFT_TRY(check_rank("source", source, ranks));
        WEFT_TRY(check_buffer("sendbuff", sendbuff, sendcount));
        WEFT_TRY(check_buffer("recvbuff", recvbuff, recvcount));
        const size_t sent = sendcount * size_of(datatype), received = recvcount * size_of(datatype);
        const auto first = reinterpret_cast<uintptr_t>(sendbuff), second = reinterpret_cast<uintptr_t>(recvbuff);
        if (sent > 0 && received > 0 && (first < second ? second - first < sent : first - second < received))
            return fail(error::argument_overlap,
                        "sendbuff and recvbuff overlap ({} and {} bytes, {} apart); they must be "
                        "disjoint",
                        sent, received, first < second ? second - first : first - second);
        Call calls[2] = {receive_call(Caller::send_receive, recvbuff, recvcount, datatype, source, stream),
                         send_call(Caller::send_receive, sendbuff, sendcount, datatype, dest, stream)};
        return run_messages(entered, comm, calls);
    });
}
}
