// own_stream.hpp: a stream of torch's pool for one owner. The pool has few streams and gives them out in turn. Operations of
// two owners on one stream would wait for each other.
#pragma once
#include <c10/core/Stream.h>

namespace weft_torch {

class OwnStream {
  public:
    // Takes a stream that no other owner in this process has, if the pool has one.
    OwnStream(const c10::Device& device, bool high_priority);
    OwnStream(const OwnStream&) = delete;
    ~OwnStream();
    const c10::Stream& get() const { return stream_; }

  private:
    const c10::Stream stream_;
};

}  // namespace weft_torch
