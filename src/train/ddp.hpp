// ddp.hpp: data-parallel training: the iterations of one registered model. docs/design/training.md explains them.
#pragma once
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "src/train/gradient_buckets.hpp"
#include "src/train/hooks/bucket_hooks.hpp"
#include "src/train/launch_queue.hpp"
#include "src/train/membership.hpp"
#include "src/train/model.hpp"
#include "src/train/peers.hpp"
#include "src/train/reports.hpp"

namespace weft::internal::train {

// The communicator is used by the caller's thread while the queue is empty, and otherwise by the queue's thread.
// Thread-bound, except abort(), which is thread-safe.
class Ddp {
  public:
    // All ranks of `comm` call it, also one that has failed: `own` is its failure, which it returns, and all others fail.
    // The memory of the model lies in `space`.
    static Result<std::shared_ptr<Ddp>> make(Status own, Model model, std::unique_ptr<MemorySpace> space,
                                             weftComm_t comm);
    Ddp(const Ddp&) = delete;
    Ddp& operator=(const Ddp&) = delete;
    // Aborts an iteration that other ranks cannot finish any more.
    ~Ddp();

    bool on_device() const { return space_->on_device(); }
    Status check_stream(const char* function, weftStream_t stream) const { return space_->check(function, stream); }
    // The failure that has ended the object. Does not wait.
    Status state() const;
    // On a device: the failure of work in progress, after a wait for it. An open iteration is left alone.
    Status settle();
    // Streams are the caller's, and count on a device only.
    Status begin(weftTrainMode_t mode, weftStream_t stream);
    // If one report is wrong, those before it count.
    Status ready(std::span<const int> parameters, weftStream_t stream);
    Status finish(weftStream_t stream);
    Status join(weftStream_t stream);
    bool in_hook() const { return in_hook_of(hook_owner_); }
    const std::shared_ptr<const char>& hook_life() const { return hook_owner_.life; }
    void abort() { peers_->abort(); }
    // A call has ended in the middle: the object ends on all ranks.
    void end_by_exception() noexcept;

    Status zero_gradients(weftStream_t stream);
    int bucket_count() const { return int(buckets_.layout().buckets.size()); }
    int parameter_count() const { return int(model_.parameters.size()); }
    void* gradient(int parameter) const;
    bool used(int parameter) const { return used_by_any_[size_t(parameter)] != 0; }
    bool reduced() const { return reduced_; }  // the gradients are averages
    int bucket_of(int parameter) const { return buckets_.layout().places[size_t(parameter)].bucket; }

  private:
    Ddp(Model model, std::unique_ptr<MemorySpace> space, GradientBuckets buckets, std::unique_ptr<Peers> peers,
        std::unique_ptr<LaunchQueue> queue);

    Status usable() const;
    // Keeps a failure after which the object has ended. One of this rank alone ends it on the others, too.
    Status ended_by(Status status);
    Status begin_with_all(bool active, weftTrainMode_t mode);
    Status begin_synchronizing();
    Status rebuild();
    // Makes a gradient part of its bucket: the caller's, or zeros.
    Status take(int parameter, bool zeros);
    Status check_missing() const;
    void launch_full();
    Status launch(int bucket);
    // Launches the rest and waits for the results.
    Status complete(bool active);
    bool exchanges_used() const {
        if (!model_.settings.join)
            return model_.settings.find_unused || (model_.settings.static_graph && !first_.ended);
        return model_.settings.find_unused || members_.recording();
    }

    Model model_;
    std::unique_ptr<MemorySpace> space_;
    GradientBuckets buckets_;
    std::unique_ptr<Peers> peers_;  // ends before the memory of its calls
    HookOwner hook_owner_;
    Reports reports_;
    FullBuckets full_;
    Membership members_;
    std::optional<weftTrainMode_t> open_;  // the mode of the open iteration
    bool reduced_ = false;                 // the newest iteration synchronised and has ended
    FirstIteration first_;
    std::vector<int32_t> used_by_any_;
    Status failure_;
    std::unique_ptr<LaunchQueue> queue_;  // the last field: its thread uses the others
};

}  // namespace weft::internal::train
