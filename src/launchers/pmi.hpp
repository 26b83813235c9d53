// pmi.hpp: an id handed out by PMI: plain text over the socket PMI_FD that Hydra (MPICH, Intel MPI), `srun --mpi=pmi2`
// and others leave open in each process; a key-value store and a barrier. Versions 1 and 2.
#pragma once
#include "src/rendezvous/id_exchange.hpp"

namespace weft::internal {

// Collective over all ranks. The socket stays open, so that an MPI_Init which comes later finds it; unless MPI took it
// over, it is told at the process's end that we leave in good order: launchers kill a job whose process just closes it.
// An MPI that was initialised before owns the socket: nobody carries the id then.
// `job` is PMI_JOBID or empty.
Result<ExchangedText> exchange_by_pmi(int descriptor, const std::string& job, const IdExchange& exchange);

// What all processes at this launcher's server on this host have in common and no other job's: the server's pid and
// when it started. Empty if that cannot be seen. Says nothing to the server.
std::string pmi_server_identity(int descriptor);

}  // namespace weft::internal
