// registering.hpp: a window's beginning and end, in which all ranks take part: they tell each other where their parts
// lie, or that they will not go to others' any more (src/README.md, "Windows").
#pragma once
#include <vector>

#include "src/comm/handle.hpp"
#include "src/comm/undertaking.hpp"

namespace weft {

class Registering final : public Undertaking {
  public:
    // Of a window that makes or ends here, on its communicator.
    static std::shared_ptr<Registering> open(weftComm* comm, weftWindow* window);
    static std::shared_ptr<Registering> close(weftComm* comm, weftWindow* window);

    Status begin() override;
    Progress advance() override;
    Status pause(bool may_sleep) override { return communicator().pause(may_sleep); }
    Status take_failure() override;

    Registering(weftComm* comm, weftWindow* window, bool opens) : comm_(comm), window_(window), opens_(opens) {}
    // Whatever ended it before it was done: the handle that was given out names no window.
    ~Registering() override;

  private:
    enum class Stage { flushing, telling, done };
    Communicator& communicator() const { return *comm_->communicator; }
    Status begin_opening();
    Status begin_closing();
    Status tell();
    void finish();

    weftComm* comm_;
    weftWindow* window_;
    bool opens_;
    Stage stage_ = Stage::telling;
    uint32_t number_ = 0;
    std::vector<WindowPart> parts_;
    Status failure_;
};

}  // namespace weft
