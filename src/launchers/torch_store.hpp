// torch_store.hpp: an id handed out by PyTorch's TCPStore at MASTER_ADDR:MASTER_PORT, which torchrun's agent serves, or
// rank 0's process once it has called init_process_group. Speaks the store's protocol; needs no PyTorch.
#pragma once
#include "src/rendezvous/id_exchange.hpp"

namespace weft::internal {

// If nothing listens there, the result has no text. `key`: this job's alone. Attempts of a job that torchrun restarts
// may share a store and a key. A rank takes only what rank 0 answers to this call, never what an earlier attempt left.
// Collective: rank 0 returns when all ranks have the text; nothing of it stays in the store then.
Result<ExchangedText> exchange_by_torch_store(const std::string& host, uint16_t port, const std::string& key,
                                              const IdExchange& exchange);

}  // namespace weft::internal
