// checkpoint.hpp: saves and loads checkpoints. docs/design/training.md explains the protocol.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/train/checkpoint/data.hpp"
#include "src/train/checkpoint/metadata.hpp"
#include "src/train/launch_queue.hpp"
#include "src/train/peers.hpp"

namespace weft::internal::train {

// A box of this rank, in the caller's memory.
struct OwnBox {
    StoredBox facts;
    void* data = nullptr;
};

// All ranks make the same calls, except done(), item_bytes() and read_item(). A call that fails on one rank fails on
// all. `own` is a rank's failure to read its arguments. Thread-bound, except abort(), which is thread-safe.
class Checkpoint {
  public:
    static Result<std::shared_ptr<Checkpoint>> make(weftComm_t comm);
    Checkpoint(const Checkpoint&) = delete;
    Checkpoint& operator=(const Checkpoint&) = delete;

    // In the background: returns once the boxes are copied.
    Status save(Status own, const std::string& folder, std::vector<OwnBox> boxes, bool in_background);
    // Whether no save is in progress.
    bool done();
    // Returns the failure of the newest save in the background, once.
    Status wait();
    // `arrive` is called once the boxes have their elements.
    Status load(Status own, const std::string& folder, const std::vector<OwnBox>& boxes,
                const std::function<Status()>& arrive);
    // Of the checkpoint that was loaded last.
    int stored_ranks() const { return int(loaded_.metadata.file_bytes.size()); }
    Result<size_t> item_bytes(const std::string& name) const;
    Status read_item(const std::string& name, void* data) const;
    // One safetensors file with the tensors whose names begin with the prefix, which is left out.
    Status export_file(Status own, const std::string& folder, const std::string& prefix, const std::string& file);
    int rank() const { return peers_->rank(); }
    void abort() { peers_->abort(); }
    // For Destroy: as wait().
    Status settle() { return wait(); }
    // Other ranks may wait for a call that this rank will not make.
    void end_by_exception() noexcept { peers_->abort(); }

  private:
    struct Saving;  // a save in progress

    explicit Checkpoint(std::unique_ptr<Peers> peers) : peers_(std::move(peers)) {}
    // Makes collective calls. If not all ranks can finish them, the object has ended.
    Status together(const std::function<Status()>& calls);
    // The boxes that this rank writes.
    Status choose(Saving& saving, Status own, std::vector<OwnBox> boxes) const;
    Status write(Saving& saving) const;
    // Reads the metadata of a folder.
    Result<OpenedCheckpoint> open(Status own, const std::string& folder) const;
    Result<const StoredBox*> item(const std::string& name) const;

    std::unique_ptr<Peers> peers_;
    OpenedCheckpoint loaded_;             // the checkpoint that was loaded last
    Status failure_;                      // the object has ended
    std::unique_ptr<LaunchQueue> queue_;  // the last field: its thread uses the others. Null: no save in the background
};

}  // namespace weft::internal::train
