// cancellation.hpp: pthread_cancel against a thread inside Weft. C++ cannot be unwound from a system call in a destructor
// or a noexcept function: glibc would abort the process. So no call of Weft's is a cancellation point.
#pragma once
#include <pthread.h>

namespace weft::internal {

// While it lives, this thread is not cancelled. A request that comes meanwhile acts at the caller's next cancellation
// point. It takes about 20 ns, so the path of a short call that hits the plan cache does without it: that path has no
// cancellation point. Reentrant.
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
