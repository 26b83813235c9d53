#include "src/train/offload/transfer_engine.hpp"

#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <vector>

#include "src/base/thread.hpp"

namespace weft::internal::train {

namespace {

class RingEngine : public TransferEngine {
  public:
    RingEngine(std::unique_ptr<uring::Ring> ring, int slots) : ring_(std::move(ring)), results_(size_t(slots)) {}
    const char* name() const override { return "io_uring"; }
    Status begin(int slot, const Transfer& transfer) override {
        // The ring keeps an entry that it could not submit.
        if (failure_) failure_ = ring_->submit(transfer, uint64_t(slot));
        return failure_.copy();
    }
    Result<int64_t> wait(int slot) override {
        std::optional<int64_t>& result = results_[size_t(slot)];
        while (!result) {
            auto completion = ring_->next();
            if (!completion) return completion.take_status();
            results_[completion->tag] = completion->result;
        }
        return *std::exchange(result, std::nullopt);
    }

  private:
    std::unique_ptr<uring::Ring> ring_;
    std::vector<std::optional<int64_t>> results_;  // of each slot, until it is waited for
    Status failure_;
};

class ThreadEngine : public TransferEngine {
  public:
    explicit ThreadEngine(int slots) : results_(size_t(slots)) {}
    ~ThreadEngine() override {
        {
            std::lock_guard lock(mutex_);
            ending_ = true;
        }
        changed_.notify_all();
        for (OwnedThread& thread : threads_)
            if (thread.runs_here()) thread.end();
    }
    Status start() {
        for (const bool writes : {false, true}) {
            auto thread = OwnedThread::start("weft-offload", [this, writes] { work(waiting_[writes]); });
            if (!thread) return thread.take_status();
            threads_[writes] = std::move(*thread);
        }
        return ok();
    }

    const char* name() const override { return "threads"; }
    Status begin(int slot, const Transfer& transfer) override {
        {
            std::lock_guard lock(mutex_);
            waiting_[transfer.writes].push_back({slot, transfer});
        }
        changed_.notify_all();
        return ok();
    }
    Result<int64_t> wait(int slot) override {
        std::optional<int64_t>& result = results_[size_t(slot)];
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return result.has_value(); });
        return *std::exchange(result, std::nullopt);
    }

  private:
    struct Job {
        int slot;
        Transfer transfer;
    };
    void work(std::deque<Job>& jobs) {
        std::unique_lock lock(mutex_);
        for (;;) {
            changed_.wait(lock, [&] { return ending_ || !jobs.empty(); });
            if (jobs.empty()) return;
            const Job job = jobs.front();
            jobs.pop_front();
            lock.unlock();
            const int64_t moved = move(job.transfer);
            lock.lock();
            results_[size_t(job.slot)] = moved;
            changed_.notify_all();
        }
    }
    static int64_t move(const Transfer& transfer) {
        ssize_t moved;
        do
            moved = transfer.writes ? pwrite(transfer.file, transfer.memory, transfer.bytes, off_t(transfer.place))
                                    : pread(transfer.file, transfer.memory, transfer.bytes, off_t(transfer.place));
        while (moved < 0 && errno == EINTR);
        return moved < 0 ? -errno : int64_t(moved);
    }

    std::mutex mutex_;  // guards what follows, but the threads
    std::condition_variable changed_;
    std::deque<Job> waiting_[2];  // reads, writes
    std::vector<std::optional<int64_t>> results_;
    bool ending_ = false;
    OwnedThread threads_[2];
};

}  // namespace

Result<std::unique_ptr<TransferEngine>> ring_engine(int slots) {
    auto ring = uring::make_ring(unsigned(slots));
    if (!ring) return ring.take_status();
    return std::unique_ptr<TransferEngine>(std::make_unique<RingEngine>(std::move(*ring), slots));
}

Result<std::unique_ptr<TransferEngine>> thread_engine(int slots) {
    auto engine = std::make_unique<ThreadEngine>(slots);
    WEFT_TRY(engine->start());
    return std::unique_ptr<TransferEngine>(std::move(engine));
}

}  // namespace weft::internal::train
