// switched_windows.hpp: windows of device memory that lie behind the switch: all parts are bound to one multicast object,
// at equal offsets. Collectives on such memory need no staging. Each part must lie in one piece of VMM memory, as
// weftMemAlloc makes it, of the same size on all ranks.
//
// The ranks make the object in steps: create, add devices, bind, map. The caller exchanges an entry of all ranks after
// each step, so all decide alike. If a step fails on one rank, the window works without the switch.
#pragma once
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "src/gpu/domain/multicast/switched_piece.hpp"

namespace weft::internal::cuda {

// Owned by the domain. Thread-bound to the rank.
class SwitchedWindows {
  public:
    SwitchedWindows(int ranks, int rank, std::shared_ptr<const KernelSet> kernels)
        : ranks_(ranks), rank_(rank), kernels_(std::move(kernels)) {}
    SwitchedWindows(const SwitchedWindows&) = delete;
    // No kernel of any rank uses the windows any more. May wait for the device.
    ~SwitchedWindows();

    // Where a rank's part lies in its piece. 0 bytes: other memory, or several pieces.
    struct PiecePlace {
        uint64_t piece_bytes = 0, offset = 0;
    };
    // A window that is being registered, by its number on all ranks.
    PiecePlace begin(uint32_t number, const void* address, size_t bytes);
    // The next step. entries: of all ranks after the step before; this rank's becomes that of this step. False: all
    // ranks know the outcome. May wait for the device.
    bool advance(uint32_t number, std::vector<SwitchEntry>& entries);
    // Called when no kernel of any rank uses the window. May wait for the device.
    void close(uint32_t number);

    // The memory of a window around these bytes.
    SwitchedMemory find(const void* address, size_t bytes) const;

  private:
    struct SwitchedWindow {
        uintptr_t address = 0;
        size_t bytes = 0;
        SwitchedPiece part;
        int next = 0;  // a SwitchStep, or steps_end
    };
    static constexpr int steps_end = int(SwitchStep::map) + 1;

    int ranks_, rank_;
    std::shared_ptr<const KernelSet> kernels_;
    std::map<uint32_t, SwitchedWindow> windows_;
};

}  // namespace weft::internal::cuda
