// id_exchange.hpp: the exchange of rank 0's unique id through a launcher's store. Each launcher has its own transport.
#pragma once
#include <optional>
#include <string>

#include "src/base/result.hpp"
#include "src/rendezvous/deadline.hpp"

namespace weft::internal {

struct IdExchange {
    int rank;
    int ranks;
    std::string text;  // of rank 0; ignored on the other ranks
    Deadline deadline;
};

// Rank 0's text. Without a text, `reason` says why no store can carry it: all ranks find the same reason and derive an
// id. An exchange that fails after it began is a failure and no reason, since other ranks may have the text.
struct ExchangedText {
    std::optional<std::string> text;
    std::string reason;
};
inline ExchangedText no_id_transport(std::string reason) { return {std::nullopt, std::move(reason)}; }

}  // namespace weft::internal
