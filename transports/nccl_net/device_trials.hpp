// device_trials.hpp: which NICs of a plugin register the memory of a GPU. A plugin tells only in a comm, so each NIC
// registers a range for trial in a connection to itself, as NCCL does.
#pragma once
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "transports/nccl_net/memory.hpp"

namespace weft::internal::nccl_net {

// Why each NIC, in the order of Net::devices(), does not register a range; empty: it does.
using Refusals = std::vector<std::string>;

// The answers so far. One trial serves all ranges of a GPU and a way of registration that are not larger; a refusal serves
// those that are not smaller. Thread-safe.
class DeviceTrials {
  public:
    explicit DeviceTrials(const Net& net) : net_(net) {}
    // Of device memory, which `registrations` has. transport.broken: no NIC registers it.
    Result<Refusals> refusals(Registrations& registrations, const MemoryRange& range);

  private:
    struct Answer {
        size_t taken = 0, refused = SIZE_MAX;  // bytes: of the largest range that was taken, of the smallest other one
        Status why;
    };
    using Key = std::tuple<size_t, int, bool>;  // NIC, GPU, by dma-buf
    Status ask(size_t nic, Registrations& registrations, const MemoryRange& range);

    const Net& net_;
    std::mutex mutex_;  // held during a trial: ranks of a process wait for one answer
    std::map<Key, Answer> answers_;
};

// The range's handles are made later, in each comm at its first use. Nothing can take the place of device memory later, so
// NICs are tried before. transport.broken: no NIC registers it, or no descriptor is left.
Result<std::unique_ptr<RegisteredMemory>> register_range(const Net& net, DeviceTrials& trials,
                                                         const MemoryRange& range);

}  // namespace weft::internal::nccl_net
