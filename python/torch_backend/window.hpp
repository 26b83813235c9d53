// window.hpp: one-sided calls of torch, from torch 2.15 on: c10d::Window over a window of Weft.
#pragma once
#include "backend.hpp"

#ifdef C10D_BACKEND_HAS_WINDOW
#include <torch/csrc/distributed/c10d/Window.hpp>

namespace weft_torch {

// One rank's handle. Its calls are executed in their order with the group's collectives: a waiting wait_signal holds those up.
// Thread-safe.
class Window final : public c10d::Window {
  public:
    // `number`: of the group's windows, equal on all ranks.
    Window(c10::intrusive_ptr<Backend> backend, unsigned number);
    ~Window() override;

    void tensor_register(const at::Tensor& tensor, bool owning) override;
    void tensor_deregister() override;
    WorkPtr put(const at::Tensor& tensor, int64_t rank, int64_t offset, bool async,
                const c10d::PutOptions& options) override;
    at::Tensor map_remote_tensor(int64_t rank) override;
    WorkPtr signal(int64_t rank, bool async, const c10d::SignalOptions& options) override;
    WorkPtr wait_signal(int64_t rank, bool async, const c10d::WaitSignalOptions& options) override;
    c10d::WindowAttr get_attr(int64_t rank) override;

  private:
    weftWindow_t registered(const char* call) const;
    int checked(const char* call, int64_t rank) const;

    const c10::intrusive_ptr<Backend> backend_;
    // Signals are a communicator's, not a window's: each window takes a pair of its own, until all are in use.
    const int signal_, context_;
    at::Tensor tensor_;    // undefined: none is registered
    bool owning_ = false;  // tensor_ must live as long as Weft's window
    weftWindow_t window_ = nullptr;
};

}  // namespace weft_torch
#endif
