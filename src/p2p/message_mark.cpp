#include "src/p2p/message_mark.hpp"

#include <fmt/core.h>

#include <iterator>

#include "src/base/operation.hpp"

namespace weft::internal {

namespace {

const char* caller_name(MessageCaller by) {
    constexpr const char* names[] = {"weftSend",    "weftRecv",     "weftSendRecv",   "weftAlltoAllv",
                                     "weftGatherv", "weftScatterv", "weftAllGatherv", "weftReduceScatterv"};
    return size_t(by) < std::size(names) ? names[size_t(by)] : "an unknown call";
}
// The call that the other end is expected to make.
const char* counterpart_of(MessageCaller by) {
    using Caller = MessageCaller;
    return caller_name(by == Caller::send ? Caller::receive : by == Caller::receive ? Caller::send : by);
}

static_assert(weftNumTypes <= message_type_bits + 1 &&
              Operation::op_of_ordered_function <= message_reduction_bits >> 5);

bool reduces(const MessageView& view) { return caller_of(view.mark) == MessageCaller::reduce_scatter_v; }

std::string amount_text(const MessageView& view) {
    const weftDataType_t type = type_of(view.mark);
    std::string text = fmt::format("{} {}", view.count,
                                   is_datatype(type) ? weft::internal::name_of(type) : "elements of an unknown type");
    if (reduces(view)) text += fmt::format(" ({})", Operation{.op = reduction_of(view.mark)}.name_of_reduction());
    return text;
}

}  // namespace

std::string differing_messages(int from, const MessageView& sent, int to, const MessageView& wanted) {
    return fmt::format(
        "rank {} called {} with {} for rank {}, which called {} with {} from rank {}: count, type{} and the order of "
        "messages between two ranks must be the same on both",
        from, caller_name(caller_of(sent.mark)), amount_text(sent), to, caller_name(caller_of(wanted.mark)),
        amount_text(wanted), from, reduces(sent) && reduces(wanted) ? ", reduction" : "");
}

std::string owed_message(int rank, bool outgoing, bool begun, const MessageView& view) {
    const MessageCaller by = caller_of(view.mark);
    const char* const done = begun ? "has not gone on with" : "has not called";
    if (outgoing)
        return fmt::format("{} {} from rank {} for the {} that rank {} sends by {}", done, counterpart_of(by), rank,
                           amount_text(view), rank, caller_name(by));
    return fmt::format("{} {} to rank {} of the {} that rank {} called {} for", done, counterpart_of(by), rank,
                       amount_text(view), rank, caller_name(by));
}

std::string message_to_oneself(int rank, bool outgoing, const MessageView& view) {
    const MessageCaller by = caller_of(view.mark);
    return fmt::format("rank {} called {} with {} {} itself, and not {} in the same group", rank, caller_name(by),
                       amount_text(view), outgoing ? "to" : "from", counterpart_of(by));
}

}  // namespace weft::internal
