// torch_store.hpp: exchanges the unique id by PyTorch's TCPStore at MASTER_ADDR:MASTER_PORT. torchrun's agent serves it,
// or rank 0's process after init_process_group. Speaks the store's protocol and needs no PyTorch.
#pragma once
#include "src/rendezvous/id_exchange.hpp"

namespace weft::internal {

// If no process listens there, the result has no text. `key`: unique to this job. Attempts of a job that torchrun
// restarts may share a store and a key. A rank takes only rank 0's answer to this call, never a text of an earlier
// attempt. Collective: rank 0 returns when all ranks have the text, and leaves no key in the store.
Result<ExchangedText> exchange_by_torch_store(const std::string& host, uint16_t port, const std::string& key,
                                              const IdExchange& exchange);

}  // namespace weft::internal
