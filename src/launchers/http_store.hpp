// http_store.hpp: exchanges the unique id by Horovod's rendezvous server: PUT and GET of /scope/key over plain HTTP.
#pragma once
#include "src/rendezvous/id_exchange.hpp"

namespace weft::internal {

// If no process listens there, the result has no text.
Result<ExchangedText> exchange_by_http(const std::string& host, uint16_t port, const IdExchange& exchange);

}  // namespace weft::internal
