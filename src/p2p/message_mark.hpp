// message_mark.hpp: a word that travels with each message, so that both ends detect mismatched calls. It holds the data
// type and the call; of a collective also its number and its reduction. GPU kernels compare it too.
#pragma once
#include <cstdint>
#include <string>

#include "weft/types.h"

namespace weft::internal {

// The call that a message belongs to.
enum class MessageCaller : uint8_t {
    send,
    receive,
    send_receive,
    all_to_all_v,
    gather_v,
    scatter_v,
    all_gather_v,
    reduce_scatter_v
};
constexpr bool of_collective(MessageCaller by) { return by > MessageCaller::send_receive; }

inline constexpr uint32_t message_type_bits = 31, message_reduction_bits = 15 << 5, message_present_bit = 1 << 9,
                          message_caller_bits = 15 << 10;
// Never zero. `reduction`: as Operation::op has it; 0 where none is made.
constexpr uint32_t message_mark(weftDataType_t type, MessageCaller by, uint16_t number, uint8_t reduction = 0) {
    return uint32_t(type) | uint32_t(reduction) << 5 | message_present_bit | uint32_t(by) << 10 |
           uint32_t(number) << 16;
}
constexpr weftDataType_t type_of(uint32_t mark) { return weftDataType_t(mark & message_type_bits); }
constexpr uint8_t reduction_of(uint32_t mark) { return uint8_t((mark & message_reduction_bits) >> 5); }
constexpr MessageCaller caller_of(uint32_t mark) { return MessageCaller((mark & message_caller_bits) >> 10); }
// The bits in which both ends must agree. weftSendRecv may receive a message of weftSend.
constexpr uint32_t compared(uint32_t mark) {
    return of_collective(caller_of(mark)) ? mark : mark & ~message_caller_bits;
}

// One end's view of a message, for error texts.
struct MessageView {
    uint32_t mark;
    uint64_t count;
};
// The error text if rank `from` sends another message than rank `to` expects.
std::string differing_messages(int from, const MessageView& sent, int to, const MessageView& wanted);
// Describes the call that a peer of `rank` has not made: "has not called weftRecv from rank 1 for the 10 float that
// rank 1 sends by weftSend".
std::string owed_message(int rank, bool outgoing, bool begun, const MessageView& view);
// The error text if `rank` calls only one half of a message to itself.
std::string message_to_oneself(int rank, bool outgoing, const MessageView& view);

}  // namespace weft::internal
