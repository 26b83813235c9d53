// call.hpp: the calls of Weft that carry out one operation of torch.
#pragma once
#include <ATen/ATen.h>

#include <chrono>
#include <functional>
#include <vector>

#include "communicator.hpp"

namespace weft_torch {

struct Call {
    // Makes the call. On a device it is enqueued on `stream`, which is the current one; on the host `stream` is null.
    std::function<void(weftComm_t comm, weftStream_t stream)> begin;
    // Runs when the call is done on the host, or enqueued on a device.
    std::function<void(weftComm_t comm)> end = nullptr;
    // Tensors that a device reads, beside the operation's inputs.
    std::vector<at::Tensor> also_read = {};
};

// Makes the calls, several as a group.
void execute(const std::vector<Call>& calls, Communicator& communicator, std::chrono::milliseconds timeout,
             weftStream_t stream);

}  // namespace weft_torch
