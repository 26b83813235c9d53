// settings.hpp: the settings of a communicator, from the environment, the caller's config, or the parent.
#pragma once
#include <memory>
#include <optional>
#include <string>

#include "src/comm/communicator.hpp"
#include "src/rendezvous/id_rendezvous.hpp"

namespace weft::internal {

// "ring, tree" of items.
template <class Items, class NameOf>
std::string names_of(const Items& items, NameOf&& name_of) {
    std::string names;
    for (const auto& item : items) names += fmt::format("{}{}", names.empty() ? "" : ", ", name_of(item));
    return names;
}
// Names of the CPU kernels that this machine can run.
std::string cpu_kernel_names();

// Checks WEFT_TRANSPORTS.
Status check_transports();
// The CPU kernels that WEFT_ISA names.
Result<const CpuKernels*> requested_cpu_kernels();
// The value of WEFT_GPU_PATH.
Result<GpuPath> gpu_path_asked_for();
// Whether WEFT_ALGO_FILES_ORDER is `any`.
Result<bool> any_order_asked_for();
// Whether ranks of this machine form one host: WEFT_TRANSPORTS allows shared memory.
bool ranks_share_memory();

struct Settings {
    CommunicatorOptions options;
    RendezvousOptions rendezvous;
    std::optional<int> device;  // the caller's wish, as GpuEngine::find() takes it
};
// Settings from the environment, overridden by `given` (may be null).
Result<Settings> settings_for(int ranks, const weftConfig_t* given);
// Settings of a child: those of its parent, overridden by `given` (may be null).
Result<Settings> settings_of_child(Communicator& parent, const weftConfig_t* given);
// The algorithms for so many ranks, with those of WEFT_ALGO_FILES.
Result<std::shared_ptr<const Catalog>> catalog_for(int ranks);
// Whether minBlocks and maxBlocks of a config are possible; WEFT_CONFIG_UNDEF_INT is.
Status check_blocks(int least, int most);
// The same of blockPolicy.
Status check_block_policy(int policy);
// Identity of this rank's host, for its rendezvous.
Result<uint64_t> host_of(int rank);

}  // namespace weft::internal
