// http_store.hpp: an id handed out by Horovod's rendezvous server: PUT and GET of /scope/key over plain HTTP.
#pragma once
#include "src/rendezvous/id_exchange.hpp"

namespace weft::internal {

// Nobody carries the id if nothing listens there.
Result<ExchangedText> exchange_by_http(const std::string& host, uint16_t port, const IdExchange& exchange);

}  // namespace weft::internal
