// pmix.hpp: exchanges the unique id by PMIx: the launcher's server on each node (Open MPI's mpirun, `srun --mpi=pmix`)
// has keys and fences. Its wire format is private, so Weft loads libpmix.so.2 at run time and does not link it.
#pragma once
#include "src/rendezvous/id_exchange.hpp"

namespace weft::internal {

struct PmixShared {
    ExchangedText shared;
    int ranks = -1;  // of the server; -1: unknown
    int local_rank = -1;
    int local_size = -1;
};

// Collective over all ranks; begins and ends a session of PMIx. `library`: WEFT_PMIX_LIBRARY or empty. The result has no
// text if no library is found, or if MPI was finalized in this process (libpmix does not survive a second finalize).
// A call that hangs in the library is left to a detached thread.
Result<PmixShared> exchange_by_pmix(const std::string& library, const IdExchange& exchange);

}  // namespace weft::internal
