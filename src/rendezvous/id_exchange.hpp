// id_exchange.hpp: what every rendezvous does: hand a text that rank 0 has to all ranks of a job, each in its launcher's
// way.
#pragma once
#include <optional>
#include <string>

#include "src/base/result.hpp"
#include "src/rendezvous/deadline.hpp"

namespace weft::internal {

struct IdExchange {
    int rank;
    int ranks;
    std::string text;  // rank 0's; the others' is not read
    Deadline deadline;
};

// Rank 0's text, or why there is nobody who could carry it, which all ranks find alike: they derive an id then. What
// fails after it began is a failure, not a reason: other ranks may have got the text.
struct ExchangedText {
    std::optional<std::string> text;
    std::string reason;
};
inline ExchangedText no_id_transport(std::string reason) { return {std::nullopt, std::move(reason)}; }

}  // namespace weft::internal
