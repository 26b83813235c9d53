// launch_order.hpp: the order of a rank's launches. All of them run in the order of its calls, on any streams, because
// they use the same flags. Thread-bound to the rank unless stated otherwise.
//
// An event follows each launch, so that later calls on other streams, and the host, can wait for it. An event also holds
// up what comes after it in its hardware queue, and so the kernels of other communicators. In deferred mode no event
// follows until a second stream appears while the newest launch runs. Then it is recorded in the stream of that launch,
// which must still exist. Each kernel reports its end to the host (kernel_end.hpp), so that the host asks no stream that
// the user may have destroyed, or captures. Kernels that fail do not report: after an abort the stream is asked.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>

#include "src/drivers/cuda/event.hpp"
#include "src/drivers/cuda/stream.hpp"
#include "src/gpu/domain/domain_ranks.hpp"
#include "src/gpu/domain/kernel_set.hpp"
#include "src/gpu/domain/launch_chain.hpp"
#include "src/gpu/domain/pinned_pages.hpp"
#include "src/gpu/kernels/kernel_end.hpp"

namespace weft::internal::cuda {

class LaunchOrder {
  public:
    // `ranks` and `kernels` must outlive this object.
    LaunchOrder(const DomainRanks& ranks, const KernelSet& kernels) : ranks_(ranks), kernels_(kernels) {}
    // Whether this process has fewer hardware queues than usual, so that streams share them. Communicators then begin in
    // deferred mode, and the last kernel of each call must report its end.
    static bool defers();
    // Called once, while the domain is made. `last_launches`: of the ranks of this process. `ended`: of HostReports.
    Status begin(std::shared_ptr<SharedAbortFlag> last_launches, const uint32_t* ended);
    // The launches of other communicators of this process on the device come in between; null: they do not matter.
    void set_chain(std::shared_ptr<LaunchChain> chain) { chain_ = std::move(chain); }
    // Destroys the events; their context must be current.
    void end();

    // Fails if another rank of this process launches the same operation on the same stream: both would wait for each
    // other. The thread's own stream (CU_STREAM_PER_THREAD) cannot be identified, so it is not checked.
    Status claim(CUstream stream, const StreamFacts& facts);
    // Held from order() to note(): other communicators of the chain launch before or after.
    std::unique_lock<std::mutex> take_turn() const {
        return chain_ ? std::unique_lock(chain_->mutex) : std::unique_lock<std::mutex>();
    }
    // Called before and after each launch. `stream` may be CU_STREAM_PER_THREAD, another stream in each thread.
    Status order(CUstream stream, const StreamFacts& facts);
    Status note(CUstream stream, const StreamFacts& facts);
    // Called before note(): a kernel that has been launched directly reports its end.
    void will_report(uint32_t launch, uint32_t blocks) {
        newest_.reporting.store(reporting_launch(launch, blocks), std::memory_order_relaxed);
    }
    // Whether a directly launched kernel is still running, or may be: in deferred mode nobody can tell after an abort while
    // its stream is captured. Thread-safe.
    bool working() const { return state() != LaunchState::ended; }
    // Whether launches were captured: their graphs may be replayed at any time. Thread-safe.
    bool captured() const { return captured_.load(std::memory_order_relaxed); }
    // Returns when the directly launched kernels have ended, or two seconds after an abort. It does not wait for kernels
    // that nobody can tell about.
    void finish() const;

  private:
    enum class LaunchState { ended, running, unknown };
    LaunchState state() const;
    // Records the event behind the newest launch if none follows it yet. False: its stream is captured. Thread-safe.
    Result<bool> record_deferred() const;
    // Whether the newest launch has reported its end. Thread-safe.
    bool reported() const { return has_ended(ended_, newest_.reporting.load(std::memory_order_acquire)); }
    Status note_direct(CUstream stream, const StreamFacts& facts);

    const DomainRanks& ranks_;
    const KernelSet& kernels_;
    std::shared_ptr<SharedAbortFlag> last_launches_;
    std::shared_ptr<LaunchChain> chain_;
    std::shared_ptr<Event> done_;           // after the launch with the number `recorded_`
    std::shared_ptr<Event> captured_done_;  // after the newest launch of the capture `capture_`
    const uint32_t* ended_ = nullptr;
    bool deferring_ = false;  // until a second stream appears
    // The newest direct launch. `number` is written (release) after the others; 0: there was none.
    struct NewestLaunch {
        std::atomic<uint64_t> stream_id{0}, number{0}, reporting{0};  // reporting: as reporting_launch()
        std::atomic<CUstream> stream{nullptr};
    } newest_;
    mutable std::mutex recording_;               // a thread records a deferred event
    mutable std::atomic<uint64_t> recorded_{0};  // in number of launches
    uint64_t last_captured_ = 0;
    uint64_t claims_ = 0;
    uint64_t capture_ = 0;
    std::atomic<bool> captured_{false};
};

}  // namespace weft::internal::cuda
