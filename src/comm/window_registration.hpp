// window_registration.hpp: a window's beginning and end, in which all ranks take part: they tell each other where their parts
// lie, or that they will not go to others' any more (docs/design/rma.md).
#pragma once
#include <vector>

#include "src/comm/async_operation.hpp"
#include "src/comm/handle.hpp"

namespace weft::internal {

class WindowRegistration final : public AsyncOperation {
  public:
    // Of a window that makes or ends here, on its communicator.
    static std::shared_ptr<WindowRegistration> open(weftComm* comm, weftWindow* window);
    static std::shared_ptr<WindowRegistration> close(weftComm* comm, weftWindow* window);

    Status begin() override;
    Progress advance() override;
    Status pause(bool may_sleep) override;
    Status take_failure() override;

    WindowRegistration(weftComm* comm, weftWindow* window, bool opens) : comm_(comm), window_(window), opens_(opens) {}
    ~WindowRegistration() override;

  private:
    // Of device memory: placing our part, and reaching the others', then agreeing that all do; draining our kernels
    // before we tell, and unmapping behind it. To unmap may wait for the device, so nobody parts, and enqueues what
    // would wait for those who are still here, before all have unmapped everything.
    enum class Stage { flushing, draining, telling, placing, reaching, agreeing, unmapping, parting, done };
    Communicator& communicator() const { return *comm_->communicator; }
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
    Status refused_;                 // why it is not to be made, on any rank
    bool open_ = false;              // it is to be closed if it is not made
    bool placed_ = false;            // others may map our part
    bool on_device_ = false;
    int64_t since_us_ = 0;  // that it waits for the device
    Status failure_;
};

}  // namespace weft::internal
