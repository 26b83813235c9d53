// memory_pool.hpp: memory of retired domains, kept for later domains of the process. Freeing it would wait for the
// device, where kernels of another communicator may wait for a rank of this very thread.
#pragma once
#include <list>
#include <memory>
#include <mutex>
#include <optional>

#include "src/drivers/cuda/exportable_memory.hpp"
#include "src/drivers/cuda/multicast.hpp"
#include "src/gpu/domain/multicast/switched_buffers.hpp"
#include "src/gpu/domain/multicast/switched_windows.hpp"
#include "src/gpu/domain/network_slots.hpp"

namespace weft::internal::cuda {

// Pinned host memory of a domain: for reports of kernels, and the words of remote ends (empty with one host).
struct HostMemory {
    PinnedMemory reports, remote;
};

// Memory of a rank that is bound to a multicast object of all ranks.
struct MulticastMemory {
    VmmMemory memory;
    MulticastObject object;  // destroyed first
};

// One per process. Thread-safe.
class MemoryPool {
  public:
    static MemoryPool& of_process();
    // Memory that was allocated for the same device and size, and with the same method.
    std::optional<ExportableMemory> take(const Context& context, size_t bytes, ExportableMemory::ExportMethod way);
    std::optional<HostMemory> take_host(const Context& context, size_t remote_bytes);
    // Registered with this transport, or with none if it is null.
    std::optional<NetworkSlots> take_slots(const Context& context, size_t bytes, bool on_device, const void* transport);
    // `bytes`: the requested size.
    void give(Context context, ExportableMemory memory, size_t bytes);
    void give(Context context, HostMemory memory);
    void give(Context context, NetworkSlots slots);
    // Kept until free_multicast_soon(). No later domain takes it, because the same ranks would have to take theirs.
    void give(Context context, MulticastMemory memory);
    // The same for windows and buffers that were not deregistered.
    void give(std::unique_ptr<SwitchedWindows> windows, std::shared_ptr<SwitchedBuffers> buffers);
    // Frees what was given, in a thread of the process (driver_tasks.hpp).
    void free_multicast_soon();
    // Waits until such a thread has ended what it frees. Called without a lock.
    void await_freed() { const std::lock_guard lock(freeing_); }
    // Kept until the pool is emptied: other hosts may have the memory mapped.
    void give(Context context, VmmMemory memory);

  private:
    struct RetiredMemory {
        Context context;
        ExportableMemory memory;
        size_t bytes;  // the requested size
    };
    struct RetiredHostMemory {
        Context context;
        HostMemory memory;
    };
    struct RetiredSlots {
        Context context;
        NetworkSlots memory;
    };
    struct RetiredFabric {
        Context context;
        VmmMemory memory;
    };
    struct RetiredMulticast {
        Context context;
        MulticastMemory memory;
    };

    struct RetiredSwitched {
        std::unique_ptr<SwitchedWindows> windows;
        std::shared_ptr<SwitchedBuffers> buffers;
    };

  public:
    struct Contents {
        std::list<RetiredMemory> memory;
        std::list<RetiredHostMemory> host;
        std::list<RetiredSlots> slots;
        std::list<RetiredMulticast> multicast;
        std::list<RetiredFabric> fabric;
        std::list<RetiredSwitched> switched;
    };
    // Empties the pool. The caller frees the contents without a lock.
    Contents take_all();

  private:
    std::mutex freeing_;  // held while multicast memory is freed; locked before mutex_
    std::mutex mutex_;
    Contents all_;
};

}  // namespace weft::internal::cuda
