// rdma_check.hpp: the parts of `weft rdma-check`, and its table.
#pragma once
#include "tools/rdma_check_meeting.hpp"

namespace weft::internal::tools {

struct RdmaCheckPlan {
    int runs = 3;  // of each measurement, Weft and perftest in turn
    bool measures = true;
    bool failures = true;
    int socket_port = 18515;  // of perftest
};

// Both processes call it; rank 0 prints. False: something failed, and a line says what.
Result<bool> check_rdma_between(RdmaMeeting& meeting, const RdmaCheckPlan& plan);

}  // namespace weft::internal::tools
