// offloaded_states.hpp: the states of an optimizer in a file. A pass over them reads chunks ahead, and writes them behind.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "src/train/offload/offload_layout.hpp"
#include "src/train/offload/state_file.hpp"
#include "src/train/offload/transfer_engine.hpp"

namespace weft::internal::train {

struct OffloadRule {
    enum class Engine { any, ring, threads };

    std::string folder;         // empty: states lie in memory
    bool values = false;        // the float32 values, too
    size_t chunk_elements = 0;  // of each array; 0: chunk_default
    int buffers = 4;            // chunks in memory
    Engine engine = Engine::any;

    static constexpr size_t chunk_default = 262'144;  // 1 MiB of each array: a disk reaches its bandwidth
};

// A piece in memory, with its elements of each array.
struct LoadedPiece {
    size_t part, first, count;
    float* arrays[3];  // the first ones exist
};

// Thread-bound.
class OffloadedStates {
  public:
    // `counts`: the elements of each part. `arrays`: of each part, 1 to 3. All of them are zero at first.
    static Result<std::unique_ptr<OffloadedStates>> make(const OffloadRule& rule, std::span<const size_t> counts,
                                                         int arrays);
    OffloadedStates(const OffloadedStates&) = delete;
    OffloadedStates& operator=(const OffloadedStates&) = delete;

    // Calls body for each chunk that has pieces of parts that are `used`, in the order of the file, with those pieces. If
    // `writes`, it changes their arrays.
    using Body = std::function<Status(std::span<const LoadedPiece>)>;
    Status pass(const std::vector<bool>& used, bool writes, const Body& body);

    size_t part_count() const { return part_count_; }
    const StateFile& file() const { return file_; }
    const char* engine() const { return engine_->name(); }
    size_t buffer_bytes() const { return chunk_bytes_ * buffers_.size(); }

  private:
    struct FreedMemory {
        void operator()(std::byte* memory) const;
    };
    struct Buffer {
        std::unique_ptr<std::byte[], FreedMemory> memory;
        bool busy = false;
        Transfer transfer;  // that is in progress
    };
    OffloadedStates(OffloadLayout layout, size_t part_count, int arrays);
    Status allocate(int buffers);
    Status run(std::span<const size_t> chunks, const std::vector<bool>& used, bool writes, const Body& body);
    Status begin(int buffer, bool writes, size_t chunk);
    Status wait(int buffer);
    std::vector<LoadedPiece> pieces_of(size_t chunk, const std::vector<bool>& used, std::byte* memory) const;

    OffloadLayout layout_;
    size_t part_count_;
    int arrays_;
    size_t chunk_bytes_;
    StateFile file_;
    std::vector<Buffer> buffers_;
    std::unique_ptr<TransferEngine> engine_;  // ends before the buffers
};

}  // namespace weft::internal::train
