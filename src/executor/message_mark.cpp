#include "src/executor/message_mark.hpp"

#include <fmt/core.h>

#include <iterator>

#include "src/base/datatype.hpp"

namespace weft {

namespace {

const char* name_of(MessageCaller by) {
    constexpr const char* names[] = {"weftSend",    "weftRecv",     "weftSendRecv",   "weftAlltoAllv",
                                     "weftGatherv", "weftScatterv", "weftAllGatherv", "weftReduceScatterv"};
    return size_t(by) < std::size(names) ? names[size_t(by)] : "an unknown call";
}
// What the other end is expected to call.
const char* counterpart_of(MessageCaller by) {
    using Caller = MessageCaller;
    return name_of(by == Caller::send ? Caller::receive : by == Caller::receive ? Caller::send : by);
}

std::string amount(const MessageView& view) {
    const auto type = weftDataType_t(view.mark & 0xff);
    return fmt::format("{} {}", view.count, is_datatype(type) ? weft::name_of(type) : "elements of an unknown type");
}

}  // namespace

std::string differing_messages(int from, const MessageView& sent, int to, const MessageView& wanted) {
    return fmt::format(
        "rank {} called {} with {} for rank {}, which called {} with {} from rank {}: count, type and the order of "
        "messages between two ranks must be the same on both",
        from, name_of(caller_of(sent.mark)), amount(sent), to, name_of(caller_of(wanted.mark)), amount(wanted), from);
}

std::string owed_message(int rank, bool outgoing, bool begun, const MessageView& view) {
    const MessageCaller by = caller_of(view.mark);
    const char* const done = begun ? "has not gone on with" : "has not called";
    if (outgoing)
        return fmt::format("{} {} from rank {} for the {} that rank {} sends by {}", done, counterpart_of(by), rank,
                           amount(view), rank, name_of(by));
    return fmt::format("{} {} to rank {} of the {} that rank {} called {} for", done, counterpart_of(by), rank,
                       amount(view), rank, name_of(by));
}

std::string message_to_oneself(int rank, bool outgoing, const MessageView& view) {
    const MessageCaller by = caller_of(view.mark);
    return fmt::format("rank {} called {} with {} {} itself, and not {} in the same group", rank, name_of(by),
                       amount(view), outgoing ? "to" : "from", counterpart_of(by));
}

}  // namespace weft
