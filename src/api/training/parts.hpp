// parts.hpp: reads the caller's arrays of weftTrainPart_t and of axes, and configs of any version.
#pragma once
#include <vector>

#include "src/base/result.hpp"
#include "src/train/optimizer/part_worker.hpp"
#include "weft/train.h"

namespace weft::internal {

// `has_values`: they are for an optimizer.
Result<std::vector<train::ModelPart>> read_parts(const char* function, const weftTrainPart_t* parts, size_t count,
                                                 size_t axes, bool has_values);
Result<train::Axes> read_axes(const char* function, const weftComm_t* axes, size_t count);

// The worker for the one kind of memory that all parts lie in.
Result<std::unique_ptr<train::PartWorker>> worker_of(const char* function, std::span<const train::ModelPart> parts);
// Whether the caller's stream suits the worker.
Status check_stream_of(const char* function, train::PartWorker& worker, weftStream_t stream);

Status check_host_call(const char* function, weftStream_t stream);
Status check_switch(const char* function, const char* name, int value);
// `from` and below `to`, or, with to_included, not above it.
Status check_number(const char* function, const char* name, double value, bool right, const char* rule);
Status check_float_type(const char* function, const std::string& owner, weftDataType_t type);
// Memory that the CPU reads: an address on a device is an error.
Status check_on_host(const char* function, const std::string& name, const void* memory);

}  // namespace weft::internal
