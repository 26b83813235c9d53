// switched_buffers.hpp: registered buffers (weftCommRegister) and buffers of captured calls that lie behind the switch,
// beside windows (switched_windows.hpp). Each must lie in one piece of VMM memory, as weftMemAlloc makes it.
//
// Registration is local, so no rank waits for another. The ranks number their suitable buffers in the order of
// registration, and those with one number form an object if their pieces have one size. A buffer of a captured call has
// its number from the graph and the call, so a rank that leaves it out does not shift later ones. A rank publishes which
// numbers it has passed: the others do not wait for those that have no slot there.
// A thread of the process takes the steps (switched_piece.hpp). After each step the rank publishes it in its row; the
// thread looks for the others' when the service thread wakes it. If a step fails on a rank, or its buffer is no longer
// registered, the others give the object up.
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

    // The number of the send buffer of a captured call, equal on all ranks. The receive buffer has the next one. All ranks
    // number the same calls.
    uint64_t number_call(uint64_t capture_id);
    // The number of the captured buffer around these bytes, which becomes `number` if there is none yet. 0: the buffer is
    // staged, or the user has registered it. The caller must hold() the number. Numbers ascend.
    uint64_t capture(uint64_t number, const void* address, size_t bytes);
    // No buffer of this series will have a number up to this one.
    void pass(uint64_t number);
    // A graph that uses the buffer has come or gone. Neither waits.
    void hold(uint64_t number);
    void release(uint64_t number);
    // Whether the held buffer may still come behind the switch, but is not there yet.
    bool is_coming(uint64_t number) const;

    // The memory of a buffer around these bytes. captured: buffers of captured calls count, too.
    SwitchedMemory find(const void* address, size_t bytes, bool captured) const;
    // Lets the thread take the steps that other ranks have allowed. Thread-safe: the service thread calls it regularly.
    void look();
    // Called when the rank leaves: no further step is taken. Waits up to ten seconds for the one that is being taken.
    void stop();

  private:
    // The rank's thread owns an unused slot, and the process's thread one that is open or closing.
    enum class SlotUse : uint8_t { unused, open, closing };
    struct Slot {
        // The rank's thread.
        uint64_t number = 0;
        int registration = -1;
        int users = 0;           // registrations or graphs
        uint64_t buffer_id = 0;  // of a captured buffer (PointerFacts)
        bool recycled = false;   // a captured buffer was freed, and its address has other memory

        VmmPiece memory = {};  // written by the rank's thread when the slot is unused
        std::atomic<SlotUse> use{SlotUse::unused};
        std::atomic<uint64_t> address{0};  // for multimem instructions (release); 0: not behind the switch
        SwitchedPiece part = {};           // the process's thread

        bool is_around(const void* address, size_t bytes) const;
    };
    // How far the other ranks are with this rank's step.
    enum class Others : uint8_t { behind, ready, gone };

    SwitchSlot& shared(int rank, size_t slot) const { return segment_->row(rank).gpu.switched[slot]; }
    // A rank's slot with the number; null: none.
    SwitchSlot* slot_of(int rank, uint64_t number) const;
    // Takes an unused slot. Null: there is none, or the number's token is in use.
    Slot* take_slot(uint64_t number, const VmmPiece& piece);
    void close(Slot& slot);
    Others others(uint64_t state) const;
    bool alike(size_t slot, uint64_t number) const;
    void serve_soon();
    void serve();
    // Takes the next step. False: there is none yet.
    bool advance(size_t slot);
    Status take_step(size_t slot, uint64_t step);
    void give_up(size_t slot, const std::string& why);

    std::shared_ptr<Segment> segment_;
    const int rank_;
    std::shared_ptr<const KernelSet> kernels_;
    uint64_t numbers_ = 0;  // of suitable buffers that the user has registered so far
    // The last call that got a number: its capture, the captures until then, the capture's calls before it.
    uint64_t numbered_capture_ = 0, captures_ = 0, calls_ = 0;
    std::array<Slot, switch_slots> slots_;
    std::atomic<bool> queued_{false}, stopped_{false};
};

}  // namespace weft::internal::cuda
