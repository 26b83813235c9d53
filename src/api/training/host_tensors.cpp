#include "src/api/training/host_tensors.hpp"

#include <set>

#include "src/api/guard.hpp"
#include "src/api/training/tensors.hpp"
#include "src/train/memory_space.hpp"

namespace weft::internal {

namespace {

Status check_tensor_memory(const char* function, const weftTrainTensor_t& tensor,
                           const train::DeviceFinder& device_of) {
    for (const void* const memory : {tensor.data, tensor.gradient}) {
        if (!memory || tensor.count == 0) continue;
        auto device = device_of(memory);
        if (!device) return device.take_status();
        if (*device >= 0)
            return fail(error::argument_device,
                        "{}: \"{}\" lies on device {}, but this kind of training takes host memory: register a copy "
                        "in host memory",
                        function, tensor.name, *device);
    }
    return ok();
}

}  // namespace

Status read_host_parameters(const char* function, const weftTrainTensor_t* tensors, size_t count,
                            std::vector<train::Tensor>& read) {
    if (!tensors || count == 0 || count > INT32_MAX)
        return fail(error::argument_value, "{}: parameters is {} and parameterCount is {}; it must be 1 to {}",
                    function, static_cast<const void*>(tensors), count, INT32_MAX);
    const train::DeviceFinder device_of = train::device_finder();
    std::set<std::string> names;
    for (size_t i = 0; i < count; ++i) {
        const auto tensor = read_entry(tensors, i, "parameter");
        if (!tensor) return tensor.status().copy();
        WEFT_TRY(check_tensor(*tensor, "parameter", i, true, names));
        if (!tensor->data && tensor->count > 0)
            return fail(error::argument_null, "parameter {}, \"{}\", has {} elements, but its data is NULL", i,
                        tensor->name, tensor->count);
        WEFT_TRY(check_tensor_memory(function, *tensor, device_of));
        read.push_back({tensor->name, tensor->data, tensor->gradient, {tensor->datatype, tensor->count}});
    }
    return ok();
}

}  // namespace weft::internal
