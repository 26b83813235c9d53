// http_store.hpp: an id handed out by Horovod's rendezvous server: PUT and GET of /scope/key over plain HTTP.
#pragma once
#include "src/rendezvous/sharing.hpp"

namespace weft::internal {

// Nobody carries the id if nothing listens there.
Result<SharedText> share_by_http(const std::string& host, uint16_t port, const Sharing& sharing);

}  // namespace weft::internal
