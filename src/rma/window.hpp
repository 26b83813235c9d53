// window.hpp: what a weftWindow_t points to, and what a one-sided call says beside its operation. A tombstone when it
// has ended: using it is a sentence and not a crash.
#pragma once
#include <atomic>
#include <string>
#include <vector>

#include "src/base/operation.hpp"
#include "src/p2p/peer_links.hpp"
#include "src/rma/one_sided.hpp"

struct weftComm;

struct weftWindow {
    // making: its ranks have not all registered it yet; unmade: nothing came of that.
    static constexpr uint64_t living = 0x7466657777696e64u, destroyed = 0x7466657777646561u,
                              making = 0x7466657777696e6du, unmade = 0x746665777775006eu;

    std::atomic<uint64_t> magic{making};
    uint64_t process = 0;
    const weftComm* comm = nullptr;
    // This rank's part, and what is known of it.
    void* address = nullptr;
    size_t bytes = 0;
    weft::internal::Space space = weft::internal::Space::host;
    bool mapped = false;             // see BufferPlacement
    weft::internal::Status unfit{};  // why it cannot be in a window
    // Once it lives (release of `magic`).
    uint32_t number = 0;
    bool on_device = false;  // its parts are device memory, all that have any
};

namespace weft::internal {

struct Access {
    weftWindow* window = nullptr;  // of puts and gets
    uint64_t offset = 0;           // bytes
    int signal = RmaMessages::no_signal;
    std::vector<SignalWait> waits = {};
};

weftWindow* make_window(const weftComm* comm, void* address, size_t bytes);
// Why it cannot be used on `comm`; ok if it can, though it may not live yet.
Status check_window(const weftWindow* window, const weftComm* comm);
// Of one that can: why it does not live.
Status check_living(const weftWindow& window);

}  // namespace weft::internal
