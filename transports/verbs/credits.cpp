#include "transports/verbs/credits.hpp"

#include "transports/verbs/numbered.hpp"

namespace weft::internal::verbs {

void Credits::add_to(Outgoing& of, uint64_t number) {
    if (last_ == nullptr || last_->closed || last_->credited == last_->released || last_->offers.any()) return;
    reinterpret_cast<MessageHeader*>(of.header(number))->credits =
        Immediate::of_credits(last_->connection, last_->released);
    last_->credited = last_->released;
}

Credits::Taken Credits::take(uint32_t word) {
    Outgoing* const outgoing = at(state_.outgoing, Immediate::connection_of(word));
    if (outgoing == nullptr) return {.wrong = "credits of an unknown connection"};
    const auto more = int16_t(Immediate::released_of(word) - uint16_t(outgoing->released));
    if (more <= 0) return {};  // lanes and reports overtake each other
    if (outgoing->released + uint64_t(more) > outgoing->posted)
        return {.wrong = "credits for messages that were not sent"};
    outgoing->released += uint64_t(more);
    return {.sender = outgoing};
}

}  // namespace weft::internal::verbs
