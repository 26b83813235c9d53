// capture.hpp: captures of CUDA graphs, as CUDA's driver tells them. torch's interface of devices does so from 2.15 on only.
#pragma once
#include <c10/core/Stream.h>

namespace weft_torch {

bool is_capturing(const c10::Stream& stream);

// While it lives, this thread may ask events although another thread captures.
class RelaxedCapture {
  public:
    RelaxedCapture() { exchange(); }
    RelaxedCapture(const RelaxedCapture&) = delete;
    ~RelaxedCapture() { exchange(); }

  private:
    void exchange();
    int mode_ = 2;  // CU_STREAM_CAPTURE_MODE_RELAXED
};

}  // namespace weft_torch
