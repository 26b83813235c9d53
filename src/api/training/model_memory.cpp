#include "src/api/training/model_memory.hpp"

#include <optional>
#include <set>

#include "src/api/guard.hpp"
#include "src/api/training/tensors.hpp"
#include "src/comm/facts.hpp"
#include "src/streams/host_stream.hpp"

namespace weft::internal {

Status read_parameters(const char* function, const weftTrainTensor_t* tensors, size_t count,
                       std::vector<train::Tensor>& read) {
    if (!tensors || count == 0 || count > INT32_MAX)
        return fail(error::argument_value, "{}: parameters is {} and parameterCount is {}; it must be 1 to {}",
                    function, static_cast<const void*>(tensors), count, INT32_MAX);
    std::set<std::string> names;
    for (size_t i = 0; i < count; ++i) {
        const auto tensor = read_entry(tensors, i, "parameter");
        if (!tensor) return tensor.status().copy();
        WEFT_TRY(check_tensor(*tensor, "parameter", i, true, names));
        if (!tensor->data && tensor->count > 0)
            return fail(error::argument_null, "parameter {}, \"{}\", has {} elements, but its data is NULL", i,
                        tensor->name, tensor->count);
        read.push_back({tensor->name, tensor->data, tensor->gradient, {tensor->datatype, tensor->count}});
    }
    return ok();
}

Result<std::unique_ptr<train::MemorySpace>> space_of(std::initializer_list<const std::vector<train::Tensor>*> all,
                                                     weftComm_t comm) {
    const auto communicator = comm->share();
    if (!communicator) return check_handle(comm);
    const auto own_device = cuda_device(*communicator);
    const train::DeviceFinder device_of = train::device_finder();
    std::optional<int> common;
    const auto check = [&](const std::string& name, const void* memory) -> Status {
        if (!memory) return ok();
        auto found = device_of(memory);
        if (!found) return found.take_status();
        if (common && *common != *found)
            return fail(error::argument_device,
                        "\"{}\" lies in another memory than what was registered before it: all parameters, gradients "
                        "and buffers lie in host memory, or on one device",
                        name);
        common = *found;
        return ok();
    };
    for (const std::vector<train::Tensor>* tensors : all)
        for (const train::Tensor& tensor : *tensors) {
            if (tensor.facts.count == 0) continue;
            WEFT_TRY(check(tensor.name, tensor.data));
            WEFT_TRY(check(tensor.name, tensor.gradient));
        }
    if (common.value_or(-1) < 0) return train::host_space();
    if (!own_device) return own_device.status().copy();
    if (*own_device != *common)
        return fail(error::argument_device, "the model lies on device {}, but the communicator's device is {}", *common,
                    *own_device);
    return train::device_space(*common);
}

Status check_stream_of(const char* function, const train::MemorySpace& space, weftStream_t stream) {
    if (space.on_device() && is_host_stream(stream))
        return fail(error::argument_stream, "{}: the object lies on a device: stream must be a CUDA stream", function);
    if (space.on_device()) return space.check(function, stream);
    if (!stream) return ok();
    return fail(error::argument_stream, "{}: stream must be NULL, because the object lies in host memory", function);
}

}  // namespace weft::internal
