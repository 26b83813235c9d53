// joining.hpp: a communicator on its way: settings put together, then a meeting of its ranks, then a handle.
#pragma once
#include <memory>
#include <vector>

#include "src/bootstrap/meeting.hpp"
#include "src/comm/handle.hpp"

namespace weft {

struct Joining {
    std::unique_ptr<Meeting> meeting;
    bool met = false;                    // then the devices join
    std::unique_ptr<DeviceSide> device;  // null: the process uses no CUDA
    int rank = 0;
    int64_t timeout_ms = 0;
    CommunicatorOptions options;
    weftComm** result = nullptr;
};

// Whether ranks of this machine are one host: not where WEFT_TRANSPORTS forbids that memory is shared.
bool ranks_share_memory();

// Checks the arguments and puts the caller's settings over the environment's; `given` may be null. *comm becomes null.
// `device` as in DeviceSide::find().
Result<Joining> prepare_joining(weftComm** comm, int ranks, const UniqueId& id, int rank, const weftConfig_t* given,
                                int device = DeviceSide::current);

// Advances all until every one has its handle; fails with the first failure, but finishes the others.
Status join(std::vector<Joining> joinings);

}  // namespace weft
