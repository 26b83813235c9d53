// switched_buffers.hpp: registered buffers (weftCommRegister) that lie behind the switch, beside windows
// (switched_windows.hpp). Each must lie in one piece of VMM memory, as weftMemAlloc makes it.
//
// Registration is local, so no rank waits for another. The ranks number their suitable buffers in the order of
// registration, and those with one number form an object if their pieces have one size. A thread of the process takes the
// steps (switched_piece.hpp). After each step the rank publishes it in its row; the thread looks for the others' when the
// service thread wakes it. If a step fails on a rank, or its buffer is deregistered, the others give the object up.
//
// The ranks need not know when the others have taken the last step, nor whether buffers with one number belong together.
// Kernels compare the places of their buffers in each call, and stage the message unless all are alike.
#pragma once
#include <array>
#include <atomic>
#include <memory>

#include "src/gpu/domain/multicast/switched_piece.hpp"
#include "src/segment/segment.hpp"

namespace weft::internal::cuda {

// Its tasks share the ownership. Thread-bound to the rank unless stated otherwise.
class SwitchedBuffers : public std::enable_shared_from_this<SwitchedBuffers> {
  public:
    SwitchedBuffers(std::shared_ptr<Segment> group, int rank, std::shared_ptr<const KernelSet> kernels)
        : segment_(std::move(group)), rank_(rank), kernels_(std::move(kernels)) {}
    // No kernel of any rank uses the buffers any more. May wait for the device.
    ~SwitchedBuffers();

    // A registration with this number has begun, or another user of it has come. More than switch_slots at a time are
    // staged.
    void add(int registration, const void* address, size_t bytes);
    // A user of it has gone. No kernel of this rank runs that uses the buffer. It does not wait.
    void remove(int registration);
    // The memory of a buffer around these bytes.
    SwitchedMemory find(const void* address, size_t bytes) const;
    // Lets the thread take the steps that other ranks have allowed. Thread-safe: the service thread calls it regularly.
    void look();
    // Called when the rank leaves: no further step is taken. Waits up to ten seconds for the one that is being taken.
    void stop();

  private:
    // The rank's thread owns an unused slot, and the process's thread one that is open or closing.
    enum class SlotUse : uint8_t { unused, open, closing };
    struct Slot {
        int registration = -1, users = 0;  // the rank's thread
        VmmPiece memory = {};              // written by the rank's thread when the slot is unused
        std::atomic<SlotUse> use{SlotUse::unused};
        std::atomic<uint64_t> address{0};  // for multimem instructions (release); 0: not behind the switch
        SwitchedPiece part = {};           // the process's thread
    };
    // How far the other ranks are with this rank's step.
    enum class Others : uint8_t { behind, ready, gone };

    SwitchSlot& shared(int rank, size_t slot) const { return segment_->row(rank).gpu.switched[slot]; }
    Others others(size_t slot, uint64_t state) const;
    bool alike(size_t slot) const;
    void serve_soon();
    void serve();
    // Takes the next step. False: there is none yet.
    bool advance(size_t slot);
    Status take_step(size_t slot, uint64_t step);
    void give_up(size_t slot, const std::string& why);

    std::shared_ptr<Segment> segment_;
    const int rank_;
    std::shared_ptr<const KernelSet> kernels_;
    uint64_t numbers_ = 0;  // of suitable buffers so far
    std::array<Slot, switch_slots> slots_;
    std::atomic<bool> queued_{false}, stopped_{false};
};

}  // namespace weft::internal::cuda
