// pmix.hpp: an id handed out by PMIx: the launcher's server on each node keeps keys and fences (Open MPI's mpirun,
// `srun --mpi=pmix`). Its wire format is private, so libpmix.so.2 is loaded when it is wanted; Weft does not link it.
#pragma once
#include "src/rendezvous/id_exchange.hpp"

namespace weft::internal {

struct PmixShared {
    ExchangedText shared;
    int ranks = -1;  // as the server has them; -1 where it does not say
    int local_rank = -1;
    int local_size = -1;
};

// Collective over all ranks; a session of PMIx is begun and ended. `library`: WEFT_PMIX_LIBRARY or empty. Nobody
// carries the id if no library is found, or MPI was finalized in this process (libpmix does not survive a second end).
// What hangs in the library is left to a thread that nobody waits for any more.
Result<PmixShared> exchange_by_pmix(const std::string& library, const IdExchange& exchange);

}  // namespace weft::internal
