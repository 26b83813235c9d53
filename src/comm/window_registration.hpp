// window_registration.hpp: registers or deregisters a window; all ranks take part (docs/design/rma.md).
// The ranks exchange where their parts lie, or that they no longer access the parts of others.
#pragma once
#include <vector>

#include "src/comm/async_operation.hpp"
#include "src/comm/handle.hpp"

namespace weft::internal {

class WindowRegistration final : public AsyncOperation {
  public:
    // Registers or deregisters `window` on its communicator.
    static std::shared_ptr<WindowRegistration> open(weftComm* comm, weftWindow* window);
    static std::shared_ptr<WindowRegistration> close(weftComm* comm, weftWindow* window);

    Status begin() override;
    Progress advance() override;
    Status pause(bool may_sleep) override;
    Status take_failure() override;

    WindowRegistration(weftComm* comm, weftWindow* window, bool opens) : comm_(comm), window_(window), opens_(opens) {}
    ~WindowRegistration() override;

  private:
    // Registration of device memory: place our part, reach the other parts, agree that all ranks do, and put the window
    // behind the switch if there is one.
    // Deregistration: drain our kernels before the exchange, unmap after it. Unmapping may wait for the device, so no
    // rank leaves (and enqueues kernels that wait for others) before all ranks have unmapped everything.
    enum class Stage { flushing, draining, telling, placing, reaching, agreeing, switching, unmapping, parting, done };
    Communicator& communicator() const { return *comm_->communicator; }
    Windows& windows() const { return communicator().calls().windows(); }
    Status pause_for_device(int64_t since_us);
    Status begin_opening();
    Status begin_closing();
    Status tell();
    template <class Word>
    Status tell(std::vector<Word>& all);
    void wait_for_device(Stage stage);
    Progress advance_telling();
    Progress advance_on_device();
    Progress have_announced();
    Progress have_placed();
    Progress close();
    Progress agree();
    Progress advance_switch();
    Progress end();
    Progress refuse(Status why);
    Status check_parts();
    void finish();
    void unmake();

    weftComm* comm_;
    weftWindow* window_;
    bool opens_;
    Stage stage_ = Stage::telling;
    uint32_t number_ = 0;
    std::vector<WindowPart> parts_;
    std::vector<uint64_t> reached_;  // by rank: whether it reaches all parts
    std::vector<cuda::SwitchEntry> switch_entries_;
    Status refused_;       // why no rank gets the window
    bool open_ = false;    // our part must be closed if the registration fails
    bool placed_ = false;  // other ranks may map our part
    bool on_device_ = false;
    int64_t since_us_ = 0;  // begin of the wait for the device
    Status failure_;
};

}  // namespace weft::internal
