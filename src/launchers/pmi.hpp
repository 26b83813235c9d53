// pmi.hpp: exchanges the unique id by PMI, versions 1 and 2: a key-value store and a barrier, in plain text over the
// socket PMI_FD. Hydra (MPICH, Intel MPI), `srun --mpi=pmi2` and others open that socket for each process.
#pragma once
#include "src/rendezvous/id_exchange.hpp"

namespace weft::internal {

// Collective over all ranks. The socket stays open for a later MPI_Init. Unless MPI has taken it over, the process sends
// `finalize` at its end, because launchers kill a job if a process just closes the socket. If MPI was initialised
// before, it owns the socket, and the result has no text.
// `job` is PMI_JOBID or empty.
Result<ExchangedText> exchange_by_pmi(int descriptor, const std::string& job, const IdExchange& exchange);

// The pid and start time of this launcher's server: equal for all processes of the job on this host, and different for
// other jobs. Empty if the kernel does not show them. Sends nothing to the server.
std::string pmi_server_identity(int descriptor);

}  // namespace weft::internal
