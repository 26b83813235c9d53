// windows.hpp: the windows of a communicator on one rank: their numbers, and the memory behind them on the host and on
// the GPU. All ranks take part in registering and deregistering one (window_registration.hpp). docs/design/rma.md.
#pragma once
#include <atomic>

#include "src/comm/call.hpp"
#include "src/comm/rank_context.hpp"

namespace weft::internal {

// Owned by ActiveCalls. Thread-bound to the rank, except any().
class Windows {
  public:
    explicit Windows(RankContext& context) : context_(context) {}

    // ---- Registration.
    uint32_t next_number() const { return windows_ + 1; }
    void count() { ++windows_; }
    // Gives our window `number`, the next number on all ranks. Returns our entry for the other ranks, also if the
    // window is unfit. A failure is fatal, because the other ranks wait for the entry.
    Result<WindowPart> open(uint32_t number, weftWindow& window);
    // When all ranks have exchanged their entries; a window in host memory is then complete.
    // In device memory: exports our part, then finds the peers' parts for our kernels. A failure of these is this
    // rank's own.
    void complete(uint32_t number, std::span<const WindowPart> parts);
    Status open_on_device(uint32_t number, const weftWindow& window, WindowPart& part) {
        return context_.device->windows().open(number, window.address, window.bytes, part);
    }
    Result<bool> reach(uint32_t number, std::span<const WindowPart> parts) {
        return context_.device->windows().reach(number, parts);
    }
    bool switches(uint32_t number, std::span<const WindowPart> parts) {
        return context_.device->windows().switches(number, parts);
    }
    bool advance_switch(uint32_t number, std::vector<cuda::SwitchEntry>& entries) {
        return context_.device->windows().advance_switch(number, entries);
    }
    void complete_on_device(uint32_t number);
    std::vector<int> missing_on_device(uint32_t number) const { return context_.device->windows().missing(number); }

    // ---- Deregistration. After begin_to_close(), closed() returns true when no peer maps our part any more.
    // `messages`: see OneSided::close().
    void begin_to_close(uint32_t number, bool messages);
    bool closed(uint32_t number) { return !context_.device || context_.device->windows().closed(number); }
    // Closes a window of a dead communicator, or one whose registration failed. Waits two seconds at most.
    void give_up(uint32_t number);

    // ---- Use.
    // Whether there are windows of host memory. Thread-safe.
    bool any() const { return host_windows_.load(std::memory_order_relaxed) > 0; }
    // The memory space of a one-sided call. A call of no bytes has no buffer, so its window decides.
    Space space_of(const Call& call, const AccessCall& access) const;
    // The call as the engines take it, or the reason why no window serves it.
    Result<OneSidedCall> resolve(const AccessCall& access, Space space) const;
    // Serves requests of other ranks to this rank's windows, between its calls. True: something moved.
    bool serve() { return host_->serve(); }
    bool exists() const { return host_ != nullptr; }
    // Needs a window to have been opened.
    OneSided& host() const { return *host_; }
    // Waits until no rank of this host accesses our windows in place; two seconds at most.
    // The ranks see the abort flag or our state and stop.
    void await_untouched();

  private:
    RankContext& context_;
    std::unique_ptr<PeerLinks> links_;                      // null until there is a window
    std::unique_ptr<OneSided> host_;                        // null until there is a window
    uint32_t windows_ = 0;                                  // number so far
    std::atomic<int> host_windows_{0}, device_windows_{0};  // number of windows, by memory space
};

}  // namespace weft::internal
