// rdma_check_parts.hpp: the parts of `weft rdma-check`, each for one of two ranks in a process of its own.
#pragma once
#include <string>

namespace weft::internal::tools {

struct RdmaPart {
    std::string name;  // transfers, times, alive
    std::string id;    // of the communicator, as text
    int rank = 0;
    bool little_memory = false;  // with 64 KiB that may be pinned
};

// Prints a line for each result: its name, and a number. After an error of Weft's the line is `error`, its id, the rank that
// it names, and the sentence. Returns the process's exit status.
int run_rdma_part(const RdmaPart& part);

}  // namespace weft::internal::tools
