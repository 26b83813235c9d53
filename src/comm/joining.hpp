// joining.hpp: how a communicator is made: its settings, the rendezvous of its ranks, then its handle.
#pragma once
#include <memory>
#include <vector>

#include "src/comm/call_statuses.hpp"
#include "src/comm/handle.hpp"
#include "src/comm/settings.hpp"

namespace weft::internal {

struct Joining {
    std::unique_ptr<Rendezvous> rendezvous;  // null: it has ended
    bool met = false;                        // the ranks have met; then the devices join
    std::unique_ptr<GpuEngine> device;       // null: the process uses no CUDA
    int rank = 0;
    int64_t timeout_ms = 0;
    CommunicatorOptions options;
    bool same_ranks = false;  // the ranks of the parent, in order: its machines and tuning in `options` hold
    weftComm** result = nullptr;
    size_t number = 0;  // of the call in its group
    // If the user gets the handle at once: the turn makes weftCommDestroy wait, and the deleter marks a handle that was
    // never filled as failed.
    struct GiveUp {
        void operator()(weftComm* handle) const noexcept { handle->give_up(); }
    };
    std::unique_ptr<Turn> turn;
    std::unique_ptr<weftComm, GiveUp> handle;
    void hand_out(weftComm** comm) {
        handle.reset(make_handle());
        turn = std::make_unique<Turn>(handle->turns);
        *comm = handle.get();
    }
};

// Checks the arguments and sets *comm to null. Settings of `given` (may be null) override the environment.
// `device`: see GpuEngine::find().
Result<Joining> prepare_joining(weftComm** comm, int ranks, const UniqueId& id, int rank, const weftConfig_t* given,
                                int device = GpuEngine::current);

// One step of joining; true when the rank has its handle.
Result<bool> advance(Joining& joining);
// Advances all until each has its handle or failed; returns the first failure. `statuses`: of their group, or null.
Status join(std::vector<Joining> joinings, CallStatuses* statuses = nullptr);

}  // namespace weft::internal
