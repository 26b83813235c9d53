// call.hpp: a call as a value: its kind, its arguments and where it runs.
// The API checks the arguments, CallPlacement finds the memory space, and ActiveCalls executes the call.
#pragma once
#include <variant>

#include "src/base/operation.hpp"
#include "src/p2p/message_mark.hpp"
#include "src/p2p/peer_buffers.hpp"
#include "src/planning/call_settings.hpp"
#include "src/rma/window.hpp"

namespace weft::internal {

// The rank's own part of a user's reduction; the Operation holds the part that all ranks share.
struct Operand {
    const void* data = nullptr;  // see Run::start(); null: a built-in reduction
    int reduction = 0;           // number in UserReductions
    bool on_device = false;
};

// A collective of equal parts.
struct CollectiveCall {
    Operation operation;  // without choice
    const void* send = nullptr;
    void* receive = nullptr;
    Operand operand = {};
};

// A collective in which each rank passes its own counts.
struct UnevenCall {
    Operation operation;  // without counts
    const void* send = nullptr;
    void* receive = nullptr;
    Operand operand = {};
    const PeerBuffers* peer_buffers = nullptr;  // the caller keeps them until the call is done
};

// A point-to-point message.
struct MessageCall {
    int peer = 0;
    bool outgoing = false;
    void* data = nullptr;  // only read if outgoing
    uint64_t count = 0;
    weftDataType_t type = weftInt8;
    MessageCaller by = MessageCaller::send;

    size_t bytes() const { return count * datatype_bytes[type]; }
};

// A one-sided call.
struct AccessCall {
    OneSidedCall::RmaOp kind = OneSidedCall::RmaOp::flush;
    int peer = 0;
    void* data = nullptr;  // only read by a put
    size_t bytes = 0;
    const Access* access = nullptr;  // the caller keeps it until the call is done; null: a flush
};

struct Call {
    std::variant<CollectiveCall, UnevenCall, MessageCall, AccessCall> kind;
    void* stream = nullptr;
    const char* only_buffer = nullptr;  // the user's name of the only buffer; null: sendbuff and recvbuff
    // CallPlacement writes these.
    Space space = Space::host;
    bool queued = false;  // the stream is a weftHostStream_t
    bool mapped = false;  // see BufferPlacement
    bool send_mapped = false;
    bool copied = false;  // device memory, and the host works on copies (engines/staged_calls.hpp)
    CallSettings settings = {};
    const char* timeout_set_by = "timeoutMs of the call's config";  // for errors

    bool is_message() const { return std::holds_alternative<MessageCall>(kind); }
    bool is_access() const { return std::holds_alternative<AccessCall>(kind); }
};

// A call that gathers an entry of `bytes` (a multiple of 8) of each rank in rank order, in place in `all`.
Call gather_entries(Purpose purpose, int rank, void* all, size_t bytes);

}  // namespace weft::internal
