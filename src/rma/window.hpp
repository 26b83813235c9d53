// window.hpp: the object behind a weftWindow_t, and the arguments of a one-sided call. A deregistered window stays as a
// tombstone, so that using it is an error and not a crash.
#pragma once
#include <atomic>
#include <string>
#include <vector>

#include "src/base/operation.hpp"
#include "src/p2p/peer_links.hpp"
#include "src/rma/one_sided.hpp"

struct weftComm;

struct weftWindow {
    // making: some ranks have not registered it yet; unmade: registration failed.
    static constexpr uint64_t living = 0x7466657777696e64u, destroyed = 0x7466657777646561u,
                              making = 0x7466657777696e6du, unmade = 0x746665777775006eu;

    std::atomic<uint64_t> magic{making};
    uint64_t process = 0;
    const weftComm* comm = nullptr;
    // This rank's part.
    void* address = nullptr;
    size_t bytes = 0;
    weft::internal::Space space = weft::internal::Space::host;
    bool mapped = false;             // see BufferPlacement
    weft::internal::Status unfit{};  // why it cannot be part of a window
    // Valid once the window lives (release of `magic`).
    uint32_t number = 0;
    bool on_device = false;  // all non-empty parts are device memory
};

namespace weft::internal {

struct Access {
    weftWindow* window = nullptr;  // of puts and gets
    uint64_t offset = 0;           // bytes
    int signal = RmaMessages::no_signal;
    std::vector<SignalWait> waits = {};
};

weftWindow* make_window(const weftComm* comm, void* address, size_t bytes);
// Fails if the window cannot be used on `comm`. The window may not live yet.
Status check_window(const weftWindow* window, const weftComm* comm);
// Fails if the window does not live yet or any more.
Status check_living(const weftWindow& window);

}  // namespace weft::internal
