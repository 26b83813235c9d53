// cancellation.hpp: protects threads inside Weft from pthread_cancel. C++ cannot unwind from a system call in a
// destructor or a noexcept function; glibc would abort the process. So no Weft call is a cancellation point.
#pragma once
#include <pthread.h>

namespace weft::internal {

// Disables cancellation of this thread for its lifetime. A request that arrives meanwhile acts at the caller's next
// cancellation point. A short call that hits the plan cache has no cancellation point and skips this, because it costs
// too much there. Reentrant.
class CancelHeld {
  public:
    explicit CancelHeld(bool wanted = true) : wanted_(wanted) {
        if (wanted_) pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_);
    }
    CancelHeld(const CancelHeld&) = delete;
    CancelHeld& operator=(const CancelHeld&) = delete;
    ~CancelHeld() {
        if (wanted_) pthread_setcancelstate(before_, nullptr);
    }

  private:
    bool wanted_;
    int before_ = PTHREAD_CANCEL_ENABLE;
};

}  // namespace weft::internal
