#include "src/api/training/parts.hpp"

#include <cstddef>
#include <optional>

#include "src/api/guard.hpp"
#include "src/api/training/structs.hpp"
#include "src/base/datatype.hpp"
#include "src/streams/host_stream.hpp"
#include "src/train/memory_space.hpp"

namespace weft::internal {

namespace {

// The size in the first version; later versions only append fields.
constexpr size_t first_part_size = offsetof(weftTrainPart_t, axes) + sizeof(unsigned);
constexpr size_t most_axes = 32;

bool is_16_bits(weftDataType_t type) { return type == weftFloat16 || type == weftBfloat16; }

Result<train::ModelPart> read_part(const char* function, const weftTrainPart_t& part, size_t number, size_t axes,
                                   bool has_values) {
    const auto name = fmt::format("part {}, \"{}\",", number, part.name ? part.name : "");
    if (!part.name || !*part.name)
        return fail(error::argument_null, "{}: {} has no name: set its field name", function, name);
    if (part.count > size_t(1) << 48)
        return fail(error::argument_count, "{}: {} has {} elements, which is more than any memory holds", function,
                    name, part.count);
    if (has_values && !part.values && part.count > 0)
        return fail(error::argument_null, "{}: {} has {} elements, but its values are NULL", function, name,
                    part.count);
    if (part.copy && !is_16_bits(part.copyType))
        return fail(error::argument_datatype, "{}: {} has a copy of datatype {}; it must be float16 or bfloat16",
                    function, name, name_of(part.copyType));
    WEFT_TRY(check_float_type(function, name, part.gradientType));
    if (axes < most_axes && part.axes >> axes != 0)
        return fail(error::argument_value, "{}: {} has axes {:#x}, but there are {} axes: bit i stands for axes[i]",
                    function, name, part.axes, axes);
    return train::ModelPart{part.name,  part.values,   part.copy,         part.gradient,
                            part.count, part.copyType, part.gradientType, part.axes};
}

}  // namespace

Result<std::vector<train::ModelPart>> read_parts(const char* function, const weftTrainPart_t* parts, size_t count,
                                                 size_t axes, bool has_values) {
    if (!parts && count > 0) return fail(error::argument_null, "{}: parts is NULL, but there are {}", function, count);
    if (count > INT32_MAX)
        return fail(error::argument_value, "{}: partCount is {}; {} are possible", function, count, INT32_MAX);
    std::vector<train::ModelPart> read;
    for (size_t i = 0; i < count; ++i) {
        const auto part = read_struct(parts, i, WEFT_TRAIN_PART_INITIALIZER, first_part_size,
                                      fmt::format("{}: part {}", function, i), "WEFT_TRAIN_PART_INITIALIZER");
        if (!part) return part.status().copy();
        auto one = read_part(function, *part, i, axes, has_values);
        if (!one) return one.take_status();
        read.push_back(std::move(*one));
    }
    return read;
}

Result<train::Axes> read_axes(const char* function, const weftComm_t* axes, size_t count) {
    if (!axes && count > 0) return fail(error::argument_null, "{}: axes is NULL, but there are {}", function, count);
    if (count > most_axes)
        return fail(error::argument_value, "{}: axisCount is {}; {} are possible", function, count, most_axes);
    const std::span<const weftComm_t> comms(axes, count);
    for (weftComm_t comm : comms) WEFT_TRY(check_handle(comm));
    return train::Axes(comms);
}

Result<std::unique_ptr<train::PartWorker>> worker_of(const char* function, std::span<const train::ModelPart> parts) {
    const train::DeviceFinder device_of = train::device_finder();
    std::optional<int> common;
    for (const train::ModelPart& part : parts)
        for (const void* memory : {static_cast<const void*>(part.values), static_cast<const void*>(part.copy),
                                   static_cast<const void*>(part.gradient)}) {
            if (!memory || part.count == 0) continue;
            auto found = device_of(memory);
            if (!found) return found.take_status();
            if (common && *common != *found)
                return fail(error::argument_device,
                            "{}: \"{}\" lies in another memory than what stands before it: all parts lie in host "
                            "memory, or on one device",
                            function, part.name);
            common = *found;
        }
    if (common.value_or(-1) < 0) return train::host_worker();
    return train::device_worker(*common);
}

Status check_stream_of(const char* function, train::PartWorker& worker, weftStream_t stream) {
    if (!worker.space().on_device()) return check_host_call(function, stream);
    if (is_host_stream(stream))
        return fail(error::argument_stream, "{}: the parts lie on a device: stream must be a CUDA stream", function);
    return worker.space().check(function, stream);
}

Status check_host_call(const char* function, weftStream_t stream) {
    if (!stream) return ok();
    return fail(error::argument_stream, "{}: stream must be NULL, because the call is for host memory", function);
}

Status check_switch(const char* function, const char* name, int value) {
    if (value == 0 || value == 1) return ok();
    return fail(error::argument_value, "{}: {} is {}; it must be 0 or 1", function, name, value);
}

Status check_number(const char* function, const char* name, double value, bool right, const char* rule) {
    if (right) return ok();
    return fail(error::argument_value, "{}: {} is {}; it must be {}", function, name, value, rule);
}

Status check_float_type(const char* function, const std::string& owner, weftDataType_t type) {
    if (type == weftFloat32 || is_16_bits(type)) return ok();
    return fail(error::argument_datatype,
                "{}: {} has gradients of datatype {}; it must be float32, float16 or bfloat16", function, owner,
                name_of(type));
}

Status check_on_host(const char* function, const std::string& name, const void* memory) {
    auto device = train::device_of(memory);
    if (!device) return device.take_status();
    if (*device < 0) return ok();
    return fail(error::argument_device, "{}: {} lies on device {}: copy it to host memory first", function, name,
                *device);
}

}  // namespace weft::internal
