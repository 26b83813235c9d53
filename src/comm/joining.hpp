// joining.hpp: a communicator on its way: settings put together, then a rendezvous of its ranks, then a handle.
#pragma once
#include <memory>
#include <vector>

#include "src/comm/call_statuses.hpp"
#include "src/comm/handle.hpp"
#include "src/rendezvous/id_rendezvous.hpp"

namespace weft::internal {

struct Joining {
    std::unique_ptr<Rendezvous> rendezvous;  // null: it has come to its end
    bool met = false;                        // then the devices join
    std::unique_ptr<GpuEngine> device;       // null: the process uses no CUDA
    int rank = 0;
    int64_t timeout_ms = 0;
    CommunicatorOptions options;
    bool same_ranks = false;  // as those of the communicator that `options` are of: what is known of them holds
    weftComm** result = nullptr;
    size_t number = 0;  // of the call that makes it, in its group
    // To be filled, where the communicator is not waited for: if nothing comes of it, whatever the reason, it says so,
    // and until then it has a turn, so that destroying it waits.
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

// What is wrong with WEFT_TRANSPORTS; ok: nothing.
Status check_transports();
// As WEFT_ISA says.
Result<const CpuKernels*> requested_cpu_kernels();
// As WEFT_GPU_PATH says.
Result<GpuPath> gpu_path_asked_for();
// As WEFT_ALGO_FILES_ORDER says.
Result<bool> any_order_asked_for();
// Whether ranks of this machine are one host: not where WEFT_TRANSPORTS forbids that memory is shared.
bool ranks_share_memory();

// What a communicator is made with.
struct Settings {
    CommunicatorOptions options;
    RendezvousOptions rendezvous;
};
// A child's: its parent's where `given` (may be null) says nothing.
Result<Settings> settings_of_child(const Communicator& parent, const weftConfig_t* given);
// The algorithms, the user's too, that so many ranks choose among.
Result<std::shared_ptr<const Catalog>> catalog_for(int ranks);
// Where this rank is, for its rendezvous.
Result<uint64_t> host_of(int rank);

// Checks the arguments and puts the caller's settings over the environment's; `given` may be null. *comm becomes null.
// `device` as in GpuEngine::find().
Result<Joining> prepare_joining(weftComm** comm, int ranks, const UniqueId& id, int rank, const weftConfig_t* given,
                                int device = GpuEngine::current);

// One step of a rank whose devices are found and whose rendezvous is made; true when it has its handle.
Result<bool> advance(Joining& joining);
// Advances all until every one has its handle; fails with the first failure, but finishes the others. `statuses`: of the
// group that they are of, null if none.
Status join(std::vector<Joining> joinings, CallStatuses* statuses = nullptr);

}  // namespace weft::internal
